package remotecache_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/worker/remotecache"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Keys as openssl writes them: genpkey -algorithm ed25519, pkey -pubout, and the same of an RSA key.
const (
	private = `-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEICJeEWnEqeyWTnOdNJUDXxFBTvwCIRoG5cnC7vSbbrYq
-----END PRIVATE KEY-----
`
	public = `-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA5UOe7RESHLnlN+3LR8Lj7DSG4kegvQKHeArgPrM7sXU=
-----END PUBLIC KEY-----
`
	other = `-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDYQ/nVhJd4fPdbN9+DrkBu/Zto
x6sUZlwqoMnhesRv9VmJiyw5PWUPcDfZWnQLIHyMwtE9jvdtcMQalDX4oSdORJdD
k+mNtih1Xd3dnI9UO2GwOl/y/g3RFBq8Dl2I7lPv3BogFfZh/h+M7rbpf2RKq8YQ
mLMMCfBY+PnqqMrYbwIDAQAB
-----END PUBLIC KEY-----
`
)

// TestKeys: files of openssl are read, and what is no key of Ed25519 is refused.
func TestKeys(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "key")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	key, err := remotecache.ReadKey(file("a comment\n" + private))
	must(t, err)
	keys, err := remotecache.ReadPublicKeys(file(public + public))
	must(t, err)
	if len(keys) != 2 || !bytes.Equal(keys[0], keys[1]) || !keys[0].Equal(key.Public()) {
		t.Errorf("%x is not the public key of %x", keys, key)
	}
	for name, text := range map[string]string{
		"empty": "", "public": public, "text": "x", "broken": strings.Replace(private, "MC4", "MC5", 1), "large": strings.Repeat("x", 2<<20),
	} {
		if _, err := remotecache.ReadKey(file(text)); !errors.Is(err, remotecache.ErrKey) {
			t.Errorf("private, %s: %v", name, err)
		}
	}
	for name, text := range map[string]string{"empty": "", "private": private, "both": public + private, "RSA": other, "broken": strings.Replace(public, "MC", "MD", 1)} {
		if _, err := remotecache.ReadPublicKeys(file(text)); !errors.Is(err, remotecache.ErrKey) {
			t.Errorf("public, %s: %v", name, err)
		}
	}
	for _, name := range []string{t.TempDir(), "/dev/zero"} {
		if _, err := remotecache.ReadKey(name); !errors.Is(err, remotecache.ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := remotecache.ReadKey("missing"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
