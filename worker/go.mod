module holdfast/worker

go 1.25.0

require (
	golang.org/x/sys v0.47.0
	holdfast v0.0.0
)

require (
	github.com/klauspost/cpuid/v2 v2.0.12 // indirect
	github.com/zeebo/blake3 v0.2.4 // indirect
)

replace holdfast => ../
