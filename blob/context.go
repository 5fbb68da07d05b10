package blob

import (
	"context"
	"io"
)

// WithContext is r as a reader that fails with ctx's error once ctx is done, for Writer.ReadFrom, Ingest.ReadFrom and others that
// have no context: an error of their reader makes them end as they say. It looks before each Read and after it. A Read that waits
// is not interrupted; for that, close what r reads from, as context.AfterFunc can.
func WithContext(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (n int, err error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err = c.r.Read(p)
	if stop := c.ctx.Err(); stop != nil && err != io.EOF {
		err = stop
	}
	return n, err
}
