module go.etcd.io/bbolt

go 1.25.0

require (
	github.com/spf13/cobra v1.10.2
	holdfast v0.0.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace holdfast => ../..
