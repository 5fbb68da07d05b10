package page

import "hash/crc32"

// A checksum is a polynomial modulo castagnoliPoly, and a zero byte after what was
// summed multiplies it by x^8: so zeros are not summed one by one, but all at once. The
// last bit of a word stands for x^31, the first for x^0, as in all tables of CRC-32C.

const castagnoliPoly = 0x82F63B78

// Of the zeros after a content, rows of zeroStep are multiplied for, by two factors:
// fineSteps of them at most, and some times so many: 64 KiB. More are summed.
const (
	zeroStep    = 16
	fineSteps   = 256
	coarseSteps = 16
	// From so many on that is faster than to sum all at once.
	manyZeros = 2048
)

// fineZeros and coarseZeros are the factors for i steps, and for i times fineSteps.
var fineZeros, coarseZeros = zeroFactors()

func zeroFactors() (fine [fineSteps]uint32, coarse [coarseSteps]uint32) {
	const one = 1 << 31
	step := uint32(one)
	for range zeroStep * 8 { // by x
		step = times(step, one>>1)
	}
	fine[0], coarse[0] = one, one
	for i := 1; i < fineSteps; i++ {
		fine[i] = times(fine[i-1], step)
	}
	row := times(fine[fineSteps-1], step)
	for i := 1; i < coarseSteps; i++ {
		coarse[i] = times(coarse[i-1], row)
	}
	return fine, coarse
}

// times is the product of two polynomials modulo castagnoliPoly.
func times(a, b uint32) (product uint32) {
	for range 32 {
		product ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ castagnoliPoly&-(b&1)
	}
	return product
}

// sumWithZeros is the checksum of b, which is zero from end on.
func sumWithZeros(b []byte, end int) uint32 {
	zeros := len(b) - end
	steps := zeros / zeroStep
	if zeros < manyZeros || steps >= fineSteps*coarseSteps {
		return crc32.Update(0, castagnoli, b)
	}
	register := times(^crc32.Update(0, castagnoli, b[:end]), fineZeros[steps%fineSteps])
	if steps >= fineSteps {
		register = times(register, coarseZeros[steps/fineSteps])
	}
	return crc32.Update(^register, castagnoli, b[len(b)-zeros%zeroStep:])
}
