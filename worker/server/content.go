package server

import (
	"context"
	"errors"
	"fmt"
	"io"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	"github.com/opencontainers/go-digest"
	"google.golang.org/protobuf/types/known/emptypb"

	"holdfast/worker/content"
)

// contents is containerd's service of content on a store.
type contents struct {
	contentapi.UnimplementedContentServer
	store *content.Store
}

// readPiece is how many bytes of content a message has.
const readPiece = 256 << 10

func (s *contents) Info(ctx context.Context, r *contentapi.InfoRequest) (*contentapi.InfoResponse, error) {
	info, err := s.store.Info(ctx, digest.Digest(r.Digest))
	if err != nil {
		return nil, err
	}
	return &contentapi.InfoResponse{Info: contentInfo(&info)}, nil
}

func (s *contents) Update(ctx context.Context, r *contentapi.UpdateRequest) (*contentapi.UpdateResponse, error) {
	info, err := s.store.Update(ctx, content.Info{Digest: digest.Digest(r.Info.GetDigest()), Labels: r.Info.GetLabels()}, r.UpdateMask.GetPaths()...)
	if err != nil {
		return nil, err
	}
	return &contentapi.UpdateResponse{Info: contentInfo(&info)}, nil
}

func (s *contents) List(r *contentapi.ListContentRequest, to contentapi.Content_ListServer) error {
	filter, err := parseFilters(r.Filters)
	if err != nil {
		return err
	}
	list := lister[*contentapi.Info]{send: func(rows []*contentapi.Info) error {
		return to.Send(&contentapi.ListContentResponse{Info: rows})
	}}
	err = s.store.Walk(to.Context(), func(i content.Info) error {
		if !filter.Match(contentFields(&i)) {
			return nil
		}
		return list.add(contentInfo(&i))
	})
	if err != nil {
		return err
	}
	return list.end()
}

func (s *contents) Delete(ctx context.Context, r *contentapi.DeleteContentRequest) (*emptypb.Empty, error) {
	return done(s.store.Delete(ctx, digest.Digest(r.Digest)))
}

// Read sends content in pieces, each of which it has read before: no transaction is open while a client takes its time.
func (s *contents) Read(r *contentapi.ReadContentRequest, to contentapi.Content_ReadServer) error {
	d := digest.Digest(r.Digest)
	info, err := s.store.Info(to.Context(), d)
	if err != nil {
		return err
	}
	from := max(r.Offset, 0)
	if from > info.Size {
		return fmt.Errorf("content %s: %w: at %d of %d bytes", d, content.ErrOffset, from, info.Size)
	}
	end := info.Size
	if r.Size > 0 && r.Size < end-from {
		end = from + r.Size
	}
	buf := make([]byte, min(readPiece, end-from))
	for at := from; at < end; {
		n, err := s.store.ReadAt(to.Context(), d, buf[:min(int64(len(buf)), end-at)], at)
		if err != nil && (!errors.Is(err, io.EOF) || n == 0) {
			return err
		}
		if err := to.Send(&contentapi.ReadContentResponse{Offset: at, Data: buf[:n]}); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

func (s *contents) Status(ctx context.Context, r *contentapi.StatusRequest) (*contentapi.StatusResponse, error) {
	status, err := s.store.Status(ctx, r.Ref)
	if err != nil {
		return nil, err
	}
	return &contentapi.StatusResponse{Status: ingestStatus(&status)}, nil
}

func (s *contents) ListStatuses(ctx context.Context, r *contentapi.ListStatusesRequest) (*contentapi.ListStatusesResponse, error) {
	filter, err := parseFilters(r.Filters)
	if err != nil {
		return nil, err
	}
	all, err := s.store.Statuses(ctx)
	if err != nil {
		return nil, err
	}
	var list []*contentapi.Status
	for i := range all {
		if filter.Match(statusFields(&all[i])) {
			list = append(list, ingestStatus(&all[i]))
		}
	}
	return &contentapi.ListStatusesResponse{Statuses: list}, nil
}

func (s *contents) Abort(ctx context.Context, r *contentapi.AbortRequest) (*emptypb.Empty, error) {
	return done(s.store.Abort(ctx, r.Ref))
}

// Write takes content in messages, each of which it answers. The first one says the ref; the ref is this stream's until it ends,
// and what was written is kept then, unless the last message was a commit.
func (s *contents) Write(stream contentapi.Content_WriteServer) (err error) {
	r, err := stream.Recv()
	if err != nil {
		return ended(err)
	}
	w, err := s.store.Writer(stream.Context(), r.Ref, content.Expected{Size: r.Total, Digest: digest.Digest(r.Expected)})
	if err != nil {
		return err
	}
	defer func() {
		if e := w.Close(); err == nil {
			err = e
		}
	}()
	want := content.Expected{}
	for {
		answer, err := s.write(stream.Context(), w, r, &want)
		if err != nil {
			return err
		}
		if err := stream.Send(answer); err != nil || r.Action == contentapi.WriteAction_COMMIT {
			return err
		}
		if r, err = stream.Recv(); err != nil {
			return ended(err)
		}
	}
}

// ended is no error if the client has said that it is done.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// write does what one message says. want is what the messages so far expect of the content.
func (s *contents) write(ctx context.Context, w *content.Writer, r *contentapi.WriteContentRequest, want *content.Expected) (*contentapi.WriteContentResponse, error) {
	if r.Expected != "" {
		want.Digest = digest.Digest(r.Expected)
	}
	if r.Total > 0 {
		want.Size = r.Total
	}
	status := w.Status()
	answer := &contentapi.WriteContentResponse{Action: r.Action, Offset: status.Offset}
	switch r.Action {
	case contentapi.WriteAction_STAT:
		answer.StartedAt, answer.UpdatedAt = timestamp(status.Started), timestamp(status.Updated)
		answer.Total, answer.Digest = max(want.Size, status.Total), w.Digest().String()
		return answer, nil
	case contentapi.WriteAction_WRITE, contentapi.WriteAction_COMMIT:
	default:
		return nil, fmt.Errorf("%w: action %d", content.ErrInvalid, r.Action)
	}
	switch {
	case r.Offset == 0 && status.Offset > 0: // the protocol's way to begin anew
		if err := w.Truncate(ctx, 0); err != nil {
			return nil, err
		}
		answer.Offset = 0
	case r.Offset != status.Offset:
		return nil, fmt.Errorf("write %.200q: %w: at %d, and %d bytes were written", status.Ref, content.ErrOffset, r.Offset, status.Offset)
	}
	n, err := w.Write(r.Data)
	if err != nil {
		return nil, err
	}
	answer.Offset += int64(n)
	if r.Action == contentapi.WriteAction_COMMIT {
		info, err := w.Commit(ctx, want.Size, want.Digest, r.Labels)
		answer.Digest = info.Digest.String()
		return answer, err
	}
	answer.Digest = w.Digest().String()
	return answer, nil
}

func contentInfo(i *content.Info) *contentapi.Info {
	return &contentapi.Info{Digest: i.Digest.String(), Size: i.Size, CreatedAt: timestamp(i.Created), UpdatedAt: timestamp(i.Updated), Labels: i.Labels}
}

func ingestStatus(s *content.Status) *contentapi.Status {
	return &contentapi.Status{Ref: s.Ref, Offset: s.Offset, Total: s.Total, Expected: s.Expected.String(),
		StartedAt: timestamp(s.Started), UpdatedAt: timestamp(s.Updated)}
}
