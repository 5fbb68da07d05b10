// Package axis has the scales of all plots of this module.
package axis

import "math"

// Scale gives the places from A to B of values from Low to High, which are positive if it is logarithmic.
type Scale struct {
	Low, High, A, B float64
	Logarithmic     bool
}

// At is the place of a value, rounded.
func (s Scale) At(v float64) float64 {
	low, high := s.Low, s.High
	if s.Logarithmic {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	return Round(s.A + (v-low)/(high-low)*(s.B-s.A))
}

// Ticks are round values: four or so from 0 on, or the powers of ten from Low on.
func (s Scale) Ticks() (all []float64) {
	if s.Logarithmic {
		for v := s.Low; v <= s.High*1.001; v *= 10 {
			all = append(all, v)
		}
		return all
	}
	step := Decade(s.High/4, math.Floor)
	for _, factor := range []float64{5, 2} {
		if s.High/(step*factor) >= 3 {
			step *= factor
			break
		}
	}
	for i := 0.0; i*step <= s.High; i++ {
		all = append(all, i*step)
	}
	return all
}

// Round rounds to a tenth of a pixel.
func Round(v float64) float64 { return math.Round(v*10) / 10 }

// Decade is the power of ten that the logarithm of v is rounded to, by math.Floor or math.Ceil.
func Decade(v float64, to func(float64) float64) float64 { return math.Pow(10, to(math.Log10(v))) }
