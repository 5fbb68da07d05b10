module holdfast/bench

go 1.25.0

require (
	go.etcd.io/bbolt v1.5.0
	holdfast v0.0.0
	holdfast/bench/stock v0.0.0
)

require golang.org/x/sys v0.47.0 // indirect

replace (
	holdfast => ../
	holdfast/bench/stock => ./stock
)
