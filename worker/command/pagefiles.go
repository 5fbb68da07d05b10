package command

import (
	"crypto/tls"
	"fmt"
	"os"
	"strings"
)

// secure is how the page is encrypted; nil: it is not.
func (h httpConfig) secure() (*tls.Config, error) {
	if h.Certificate == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(h.Certificate, h.Key)
	if err != nil {
		return nil, fmt.Errorf("http.certificate %s, http.key %s: %w", h.Certificate, h.Key, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// checkFiles finds what is wrong with the files that the configuration names.
func (h httpConfig) checkFiles() error {
	_, err := h.secure()
	if err != nil || h.TokenFile == "" {
		return err
	}
	if _, err = readToken(h.TokenFile); err != nil {
		return fmt.Errorf("http.token_file: %w", err)
	}
	return nil
}

// leastToken is how long a token is at least: what rand.Text makes has 26 characters.
const leastToken = 20

func readToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < leastToken || strings.ContainsAny(token, " \t\r\n") {
		return "", &nextError{fmt.Errorf("the token in %s is not one word of %d characters or more", path, leastToken), "remove the file if holdfastd has made it: another is made"}
	}
	return token, nil
}
