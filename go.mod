module holdfast

go 1.25.0

require (
	github.com/klauspost/compress v1.20.3
	github.com/zeebo/blake3 v0.2.4
	golang.org/x/crypto v0.52.0
	golang.org/x/sys v0.45.0
)

require github.com/klauspost/cpuid/v2 v2.0.12 // indirect
