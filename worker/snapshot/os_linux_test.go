package snapshot_test

// deferredWorks: there is an id of the boot.
const deferredWorks = true
