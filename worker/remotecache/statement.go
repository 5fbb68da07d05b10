package remotecache

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
	"holdfast/worker/step"
)

// Names in artifacts.
const (
	// StatementType is the media type of a Statement.
	StatementType = "application/vnd.holdfast.step.result.v1+json"

	// AnnotationSignature is the annotation of a manifest with the signature, in base64, of signed and the bytes of
	// the statement.
	AnnotationSignature = "vnd.holdfast.signature"
)

// signed comes before a statement in what is signed, so that a signature of anything else is none of a statement.
const signed = "holdfast step result\x00"

const statementVersion = 1

// platform is what results are of: the files of a base need not say it.
const platform = runtime.GOOS + "/" + runtime.GOARCH

// Statement says what a result is.
type Statement struct {
	Version  int           `json:"version"`
	Step     string        `json:"step"`     // its ID
	Base     string        `json:"base"`     // as step.ContentOf has it
	Platform string        `json:"platform"` // GOOS/GOARCH
	Layer    v1.Descriptor `json:"layer"`    // what the step has changed, an archive that is compressed
	DiffID   digest.Digest `json:"diffID"`   // of the archive

	Output     []byte        `json:"output"` // what was kept of it
	OutputSize int64         `json:"outputSize"`
	Duration   time.Duration `json:"duration"` // of the command, in nanoseconds, as all times
	UserTime   time.Duration `json:"userTime"`
	SystemTime time.Duration `json:"systemTime"`
	Memory     int64         `json:"memory"` // bytes
	Created    time.Time     `json:"created"`
}

// tag is that of the result of a step on a base.
func tag(id step.ID, base string) string {
	sum := sha256.Sum256([]byte(base + "\x00" + platform))
	return id.String() + "-" + hex.EncodeToString(sum[:8])
}

// content is what a result is with its base.
func (s *Statement) content() string {
	return digest.FromString("holdfast result\x00" + s.Base + "\x00" + s.DiffID.String()).String()
}

// delta is its layer.
func (s *Statement) delta() image.Delta { return image.Delta{Blob: s.Layer, DiffID: s.DiffID} }

// sign returns the annotations of the manifest of a statement.
func sign(key ed25519.PrivateKey, statement []byte) map[string]string {
	if key == nil {
		return nil
	}
	return map[string]string{AnnotationSignature: base64.StdEncoding.EncodeToString(ed25519.Sign(key, append([]byte(signed), statement...)))}
}

// verify is ErrRefused if none of the keys has signed a statement.
func verify(keys []ed25519.PublicKey, statement []byte, annotations map[string]string) error {
	text := annotations[AnnotationSignature]
	if text == "" {
		return fmt.Errorf("%w: it is not signed", ErrRefused)
	}
	signature, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return fmt.Errorf("%w: its signature: %w", ErrRefused, err)
	}
	message := append([]byte(signed), statement...)
	for _, k := range keys {
		if ed25519.Verify(k, message, signature) {
			return nil
		}
	}
	return fmt.Errorf("%w: none of the %d trusted keys has signed it", ErrRefused, len(keys))
}

// parse reads a statement, which has to be of a step on a base.
func parse(b []byte, id step.ID, base string) (*Statement, error) {
	var s Statement
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%w: %w", image.ErrFormat, err)
	}
	switch {
	case s.Version != statementVersion:
		return nil, fmt.Errorf("%w: version %d of a statement", image.ErrFormat, s.Version)
	case s.Step != id.String() || s.Base != base || s.Platform != platform:
		return nil, fmt.Errorf("%w: it is of the step %.100q on %.100q for %.100q", ErrRefused, s.Step, s.Base, s.Platform)
	case int64(len(s.Output)) > maxOutput || s.OutputSize < 0 || s.Duration < 0 || s.UserTime < 0 || s.SystemTime < 0 || s.Memory < 0:
		return nil, fmt.Errorf("%w: a figure of the statement is out of bounds", image.ErrFormat)
	}
	return &s, nil
}
