package mount_test

import (
	"context"
	"fmt"
	"log"

	"holdfast/worker/mount"
)

// It needs root, so it is compiled and not run.
func ExampleManager_Acquire() {
	ctx := context.Background()
	manager, err := mount.Open(ctx, mount.Options{Keep: []string{"/var/lib/holdfast"}})
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)

	h, err := manager.Acquire(ctx, mount.Spec{Mount: mount.Mount{
		Type: "bind", Source: "/var/lib/holdfast/snapshots/1/fs", Options: []string{"ro"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Release()

	path, err := h.Attach(manager.Host(), "/mnt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("mounted at", path)
}
