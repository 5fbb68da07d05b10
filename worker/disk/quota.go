package disk

import "errors"

// ErrNoQuota: the file system has no project quotas, or they are not enforced. The text says what is missing.
var ErrNoQuota = errors.New("no project quotas here")
