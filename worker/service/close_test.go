package service

import (
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"holdfast/worker/api"
)

// TestCloseWaits: a daemon that was told twice to end closed its store and mounts while calls still used them: closing a server for
// HTTP ends connections, and waits for no call.
func TestCloseWaits(t *testing.T) {
	s := empty(t)
	s.stop = func() {}
	begun, goOn := make(chan struct{}), make(chan struct{})
	s.Policies = func() Policies { // of a call that does not heed its context just now
		close(begun)
		<-goOn
		return Policies{}
	}
	address := serve(t, s.Handler(Access{}))
	client := api.NewStorageClient(http.DefaultClient, "http://"+address)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if stream, err := client.Prune(t.Context(), connect.NewRequest(&api.PruneRequest{DryRun: true})); err == nil {
			for stream.Receive() {
			}
		}
	}()
	<-begun
	closed := make(chan struct{})
	go func() {
		s.Close()
		close(closed)
	}()
	select {
	case <-closed:
		t.Error("it is closed, and a call runs")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	<-closed
	<-answered
	if _, err := client.GetStatus(t.Context(), connect.NewRequest(&api.GetStatusRequest{})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a call after it: %v", err)
	}
}
