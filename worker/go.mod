module holdfast/worker

go 1.25.0

require (
	golang.org/x/sys v0.47.0
	holdfast v0.0.0
)

require github.com/BurntSushi/toml v1.6.0

replace holdfast => ../
