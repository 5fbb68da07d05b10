module holdfast/test/stock

go 1.25.0

require go.etcd.io/bbolt v1.3.12

require golang.org/x/sys v0.4.0 // indirect
