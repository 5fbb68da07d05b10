package cli

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/blob"
)

// keyVariable names the file with the key of encrypted stores, where no flag does.
const keyVariable = "HOLDFAST_BLOB_KEY_FILE"

// keySize is the length in bytes of a secret.
const keySize = 32

// AddKeyFlag adds the flag that says where the key of an encrypted store is.
func (a *App) AddKeyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.keyFile, "key-file", "", "file with the key of an encrypted store; default: $"+keyVariable)
	_ = cmd.MarkFlagFilename("key-file")
}

// BlobKey is the key of encrypted stores that is given; nil: none is.
func (a *App) BlobKey() (*blob.Key, error) {
	file, _ := a.keySource()
	if file == "" || a.key != nil {
		return a.key, nil
	}
	secret, err := a.readSecret(file)
	if err != nil {
		return nil, err
	}
	if a.key, err = blob.NewKey(secret); err != nil {
		return nil, &FileError{File: file, What: err.Error(), Err: err}
	}
	return a.key, nil
}

// keySource is the file with the key, and how it was given.
func (a *App) keySource() (file, given string) {
	if a.keyFile != "" {
		return a.keyFile, "--key-file"
	}
	return os.Getenv(keyVariable), keyVariable
}

var errNoKey = errors.New("no key")

// readSecret reads the secret in a file: 32 bytes in hexadecimal or base64.
func (a *App) readSecret(path string) (secret [keySize]byte, err error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return secret, &FileError{File: path, What: "no such file", Next: "give the file with the key", Err: err}
	case err != nil:
		return secret, a.Explain(path, err)
	}
	defer f.Close()
	const most = 1 << 10
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return secret, a.Explain(path, err)
	}
	text := strings.TrimSpace(string(b))
	decoded, err := hex.DecodeString(text)
	if err != nil || len(decoded) != keySize {
		decoded, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	}
	if err != nil || len(decoded) != keySize {
		return secret, &FileError{File: path, What: fmt.Sprintf("holds no key: %d bytes in hexadecimal or base64, and nothing else", keySize),
			Next: fmt.Sprintf("%s blob key makes a new one in a new file", a.Name()), Err: errNoKey}
	}
	if info, err := f.Stat(); err == nil && runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		a.Note(path, "other users may read the key; chmod 600 keeps them from it")
	}
	return [keySize]byte(decoded), nil
}

// wrongKey says what to do after an error of a store and the key with which it was opened.
func (a *App) wrongKey(file string, in Container, path [][]byte, err error) error {
	from, given := a.keySource()
	e := &FileError{File: file, Err: err}
	switch {
	case from == "":
		e.What = fmt.Sprintf("store %s is encrypted", BriefPath(path))
		e.Next = fmt.Sprintf("give the file with its key: --key-file, or %s in the environment", keyVariable)
	case !blob.IsEncrypted(in.Bucket):
		e.What = fmt.Sprintf("store %s is not encrypted, and a key is given by %s", BriefPath(path), given)
		e.Next = "leave the key out if that is right; an encrypted store that turns out not to be has been replaced"
	default:
		e.What = fmt.Sprintf("store %s is encrypted with another key than that in %s", BriefPath(path), OneLine(from))
		e.Next = "give the file with its key by " + given
	}
	return e
}
