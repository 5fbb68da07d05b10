package zfs

import (
	"testing"
	"time"
)

// AnswerIn has a dataset that was mounted answer in some time, for the time of a test.
func AnswerIn(t *testing.T, limit time.Duration) {
	old := answerIn
	answerIn = limit
	t.Cleanup(func() { answerIn = old })
}

// OnlyPath has programs looked for in PATH alone, for the time of a test.
func OnlyPath(t *testing.T) {
	old := sbin
	sbin = nil
	t.Cleanup(func() { sbin = old })
}
