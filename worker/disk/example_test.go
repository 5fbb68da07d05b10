package disk_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"os"

	"holdfast/worker/disk"
)

// A step reserves room before it begins. More than the disk has is refused.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	space, err := disk.Open(dir, disk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	r, err := space.Reserve(ctx, 4096)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Release()
	fmt.Println(space.Reserved(), "bytes are reserved")

	_, err = space.Reserve(ctx, math.MaxInt64)
	fmt.Println(errors.Is(err, disk.ErrFull))

	// Output:
	// 4096 bytes are reserved
	// true
}
