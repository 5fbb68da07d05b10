package command_test

import (
	"os"
	"strings"
	"testing"
)

// cacheOf is a [[cache]] with some keys that are true.
func cacheOf(repository string, keys ...string) string {
	text := "[[cache]]\nrepository = '" + repository + "'\n"
	for _, k := range keys {
		text += k + " = true\n"
	}
	return text
}

// A configuration that is wrong is refused with its file and what to do, and what is printed as the default is right.
func TestConfig(t *testing.T) {
	work(t)
	text := must(t, "config", "default")
	check(t, os.WriteFile("none.pub", []byte("no key"), 0o644))
	check(t, os.WriteFile("holdfastd.toml", []byte(text), 0o644))
	if out := must(t, "config", "check", "holdfastd.toml"); out != "holdfastd.toml is right\n" {
		t.Error(out)
	}
	for bad, says := range map[string]string{
		"rooot = 'x'":                      "there is no key rooot",
		"[steps]\nthreads = 3":             "there is no key steps.threads",
		"root = ''":                        "root is empty",
		"[steps]\nconcurrency = -1":        "concurrency",
		"[steps]\nmax_output = '2GiB'":     "at most 1GiB",
		"[steps]\nmax_output = '1 parsec'": "not a size",
		"[prune]\ninterval = '-1h'":        "1h",
		"[prune]\ninterval = '1ms'":        "shorter than a second",
		"[prune]\npolicy = 'missing'":      "missing",
		"root = 3":                         "root",
		"sync = 'never'":                   "sync",
		"share = 'share'":                  "absolute path",
		"[[containerd]]\nsocket = 'x.sock'\nnamespace = 'a'":                                                            "absolute",
		"[[containerd]]\nsocket = '/x.sock'\nnamespace = '../a'":                                                        "namespace",
		"[[containerd]]\nsocket = '/x.sock'\nnamespace = 'local'":                                                       "of steps",
		"[[containerd]]\nsocket = '/x.sock'\nnamespace = 'a'\n[[containerd]]\nsocket = '/y.sock'\nnamespace = 'a'":      "two",
		"[[containerd]]\nsocket = '/x.sock'\nnamespace = 'a'\n[[containerd]]\nsocket = '/a/../x.sock'\nnamespace = 'b'": "two",
		"[[containerd]]\nsocket = '/x.sock'\nnamespace = '" + strings.Repeat("a", 70) + "'":                             "namespace",
		"[[registry]]\nhost = 'a/b'":                                         "not a reference",
		"[[registry]]\nmirrors = ['x']":                                      "not a reference",
		"[[registry]]\nhost = 'docker.io'\nmirrors = ['x/y']":                "the mirror",
		"[[registry]]\nhost = 'docker.io'\n[[registry]]\nhost = 'docker.io'": "two",
		cacheOf("X"):                                 "not a reference",
		cacheOf("x.example/y"):                       "import, export or both",
		cacheOf("x.example/y", "import"):             "trusted needs a file with a public key",
		cacheOf("x.example/y", "export", "unsigned"): "are for import",
		cacheOf("x.example/y", "import", "unsigned") + "trusted = ['a']\n":              "leave one of them out",
		cacheOf("x.example/y", "import", "unsigned") + "key = 'a'\n":                    "key is for export",
		cacheOf("x.example/y", "export") + "key = 'missing.key'\n":                      "missing.key: no such file or directory; openssl ",
		cacheOf("x.example/y", "export") + "key = 'none.pub'\n":                         "openssl",
		cacheOf("x.example/y", "import") + "trusted = ['none.pub']\n":                   "openssl",
		cacheOf("x.example/y", "import", "unsigned") + cacheOf("x.example/y", "export"): "two [[cache]]",
		"= nothing": "holdfastd.toml",
		"[http]\ncertificate = 'missing.pem'\nkey = 'missing.pem'\n": "http.certificate missing.pem",
		"[http]\ntoken_file = 'missing.token'\n":                     "http.token_file: the token: open missing.token",
		"[http]\ntoken_file = 'none.pub'\n":                          "not one word of 20 characters or more",
	} {
		check(t, os.WriteFile("holdfastd.toml", []byte(bad), 0o644))
		if r := run(t, "", "config", "check", "holdfastd.toml"); r.code != 1 || !strings.Contains(r.errOut, says) || !strings.Contains(r.errOut, "holdfastd.toml: ") {
			t.Errorf("%q: %+v; want %q, and the file", bad, r, says)
		}
	}
	// What the default says of it was refused.
	check(t, os.WriteFile("holdfastd.toml", []byte("[prune]\ninterval = '0'"), 0o644))
	must(t, "config", "check", "holdfastd.toml")
	// What is a comment in the default is right without it.
	check(t, os.WriteFile("holdfastd.toml", []byte(strings.ReplaceAll(strings.ReplaceAll(text, "# [[", "[["), "# socket", "socket")), 0o644))
	if r := run(t, "", "config", "check", "holdfastd.toml"); !strings.Contains(r.errOut, "namespace") {
		t.Errorf("a socket without a namespace: %+v", r)
	}
	for _, key := range []string{"# [[containerd]]", "# socket =", "# namespace =", "# content =", "# [[registry]]", "# host =", "# mirrors =", "# [[cache]]", "# repository =", "# export ="} {
		text = strings.ReplaceAll(text, "\n"+key, "\n"+key[2:])
	}
	check(t, os.WriteFile("holdfastd.toml", []byte(text), 0o644))
	must(t, "config", "check", "holdfastd.toml")
	if r := run(t, "", "config", "check", "missing.toml"); r.code != 1 || !strings.Contains(r.errOut, "missing.toml") || !strings.Contains(r.errOut, "holdfastd config default prints one") {
		t.Errorf("a file that is not there: %+v", r)
	}
}
