module holdfast/bench

go 1.25.0

require (
	github.com/nspcc-dev/bbolt v0.0.0-20260404200350-24f70ceb2bd9
	go.etcd.io/bbolt v1.5.0
	holdfast v0.0.0
	holdfast/bench/stock v0.0.0
)

require golang.org/x/sys v0.47.0

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.10 // indirect
)

replace (
	holdfast => ../
	holdfast/bench/stock => ./stock
)
