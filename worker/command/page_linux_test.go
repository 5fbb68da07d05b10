package command_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// TestPageTLS: a page at all addresses of the machine is encrypted, and its address has the machine's name.
func TestPageTLS(t *testing.T) {
	stand(t, "overlay")
	public, private, err := ed25519.GenerateKey(rand.Reader)
	check(t, err)
	as := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	b, err := x509.CreateCertificate(rand.Reader, as, as, public, private)
	check(t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b})
	b, err = x509.MarshalPKCS8PrivateKey(private)
	check(t, err)
	check(t, os.WriteFile("c.pem", certificate, 0o644))
	check(t, os.WriteFile("k.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), 0o600))
	check(t, os.WriteFile("config.toml", []byte("[http]\nlisten = '0.0.0.0:0'\ncertificate = 'c.pem'\nkey = 'k.pem'\n"), 0o644))
	must(t, "config", "check", "config.toml")
	startDaemon(t, "--config", "config.toml")
	address, err := url.Parse(strings.TrimSpace(served(t, "page").out))
	check(t, err)
	name, err := os.Hostname()
	check(t, err)
	if address.Scheme != "https" || address.Hostname() != name || !strings.HasPrefix(address.Fragment, "token=") {
		t.Errorf("the page is at %s", address)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://127.0.0.1:" + address.Port() + "/healthz")
	check(t, err)
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || err != nil {
		t.Errorf("%s: %q, %v", resp.Status, body, err)
	}
}
