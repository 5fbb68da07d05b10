module holdfast/worker

go 1.25.0

require (
	github.com/klauspost/compress v1.20.3
	github.com/opencontainers/go-digest v1.0.0
	github.com/opencontainers/image-spec v1.1.1
	golang.org/x/sys v0.47.0
	holdfast v0.0.0
)

replace holdfast => ../
