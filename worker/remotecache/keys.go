package remotecache

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// maxKeys is how long a file with keys may be.
const maxKeys = 1 << 20

// ReadKey reads a private key from a file, as "openssl genpkey -algorithm ed25519" writes it: PEM of PKCS #8.
func ReadKey(path string) (ed25519.PrivateKey, error) {
	b, err := readKeys(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s: %w: there is no PRIVATE KEY in PEM", path, ErrKey)
	}
	got, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrKey, err)
	}
	key, ok := got.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: %w of Ed25519, but %T", path, ErrKey, got)
	}
	return key, nil
}

// ReadPublicKeys reads public keys from a file, one at least, as "openssl pkey -pubout" writes them.
func ReadPublicKeys(path string) (keys []ed25519.PublicKey, err error) {
	b, err := readKeys(path)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "PUBLIC KEY" {
			return nil, fmt.Errorf("%s: %w: a %.50q in place of a PUBLIC KEY", path, ErrKey, block.Type)
		}
		got, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %w", path, ErrKey, err)
		}
		key, ok := got.(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("%s: %w of Ed25519, but %T", path, ErrKey, got)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: %w: there is no PUBLIC KEY in PEM", path, ErrKey)
	}
	return keys, nil
}

func readKeys(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && (!info.Mode().IsRegular() || info.Size() > maxKeys) {
		return nil, fmt.Errorf("%s: %w: not a file of at most %d bytes", path, ErrKey, maxKeys)
	}
	return os.ReadFile(path)
}
