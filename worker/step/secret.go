package step

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// MaxSecret is how many bytes a secret may have, and MaxSecrets how many secrets a step.
const (
	MaxSecret  = 1 << 20
	MaxSecrets = 64
)

// DefaultSecretMode is the mode of a secret that says none.
const DefaultSecretMode fs.FileMode = 0o400

// secretsDir is where the secrets are that say no target.
const secretsDir = "/run/secrets"

// Secret is what a step sees as a file while it runs, and that is kept nowhere. The file is in memory that is never
// written to a disk, belongs to the user of the step, and is read-only. Its ID, Target and Mode are part of the step's
// ID; its content is not: a step with another content is a hit all the same.
type Secret struct {
	// ID is its name: letters, digits, and . _ - but for . and .. themselves.
	ID string

	// Target is the path of the file; "": /run/secrets/ID. What is missing of the path is made, and gone from the
	// result. It is in none of the Mounts that are not a tmpfs: what is made there would stay.
	Target string

	// Mode are the permissions of the file; 0: DefaultSecretMode.
	Mode fs.FileMode

	// Open is called for the content when the step is about to run, and not when there is a result. It and Read may
	// wait: the step is canceled all the same. A content of more than MaxSecret bytes is ErrInvalid.
	Open func() (io.ReadCloser, error)
}

// isSecretName tells whether a text can be the ID of a secret.
func isSecretName(id string) bool {
	other := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	}
	return id != "" && id != "." && id != ".." && len(id) < 256 && strings.IndexFunc(id, other) < 0
}

// normalSecrets are secrets in the order of their targets. The mounts are normal.
func normalSecrets(secrets []Secret, mounts []Mount) ([]Secret, error) {
	if len(secrets) > MaxSecrets {
		return nil, invalidf("%d secrets, %d are possible", len(secrets), MaxSecrets)
	}
	clean := slices.Clone(secrets)
	for i := range clean {
		s := &clean[i]
		if !isSecretName(s.ID) {
			return nil, invalidf("the secret %q: its name must be letters, digits, '.', '_' and '-'", s.ID)
		}
		if s.Open == nil {
			return nil, invalidf("the secret %s has no content", s.ID)
		}
		if s.Target == "" {
			s.Target = path.Join(secretsDir, s.ID)
		}
		if !path.IsAbs(s.Target) || strings.HasSuffix(s.Target, "/") {
			return nil, invalidf("the secret %s at %q, which is not the absolute path of a file", s.ID, s.Target)
		}
		s.Target = path.Clean(s.Target)
		if s.Mode == 0 {
			s.Mode = DefaultSecretMode
		}
		if s.Mode != s.Mode.Perm() {
			return nil, invalidf("the secret %s with the mode %v; it can have permissions only", s.ID, s.Mode)
		}
		if err := notOwn("secret at", s.Target); err != nil {
			return nil, err
		}
		if err := notInMount(s, mounts); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(clean, func(a, b Secret) int { return strings.Compare(a.Target, b.Target) })
	for i := 1; i < len(clean); i++ {
		if clean[i].Target == clean[i-1].Target {
			return nil, invalidf("two secrets at %s", clean[i].Target)
		}
	}
	return clean, nil
}

// notInMount is an error if the mount point of a secret would stay in a directory of the machine or a cache.
func notInMount(s *Secret, mounts []Mount) error {
	for _, m := range mounts {
		empty := m.Source == "" && m.Cache == ""
		if m.Target == s.Target || !empty && strings.HasPrefix(s.Target, m.Target+"/") {
			return invalidf("the secret %s at %s, which is in the mount at %s; choose another target", s.ID, s.Target, m.Target)
		}
	}
	return nil
}

// appendSecretsKey adds what of secrets is part of an ID.
func appendSecretsKey(b []byte, secrets []Secret) []byte {
	b = binary.AppendUvarint(b, uint64(len(secrets)))
	for i := range secrets {
		s := &secrets[i]
		b = binary.AppendUvarint(appendText(appendText(b, s.ID), s.Target), uint64(s.Mode))
	}
	return b
}

// tooLong is the error of a secret that has more than it may.
func (s *Secret) tooLong() error {
	return fmt.Errorf("%w: the secret %s has more than %d bytes", ErrInvalid, s.ID, MaxSecret)
}
