package gateway

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Bounds of a file of secrets.
const (
	maxSecretName  = 128     // bytes
	maxSecretFile  = 4 << 10 // bytes
	maxSecretLines = 4
)

// secretFiles is the directory that has this gateway's secrets; empty: it has
// none. A file has one secret a line, and calls are signed with each, so that
// another is put in beside the former and this taken out later. It is read with
// each call, so that a change counts from the next one on.
type secretFiles string

// keys are those in a file. INVALID_ARGS: there is none that can be used. What is
// in the file is never repeated.
func (dir secretFiles) keys(name string) ([]webhookKey, error) {
	if dir == "" {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "this gateway has no directory of secrets: start it with --webhook-secrets DIR, or leave secret_file out for a secret that the mesh stores")
	}
	text, err := readSecrets(filepath.Join(string(dir), name))
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the secrets of this gateway have no file %s that can be read (%v): put it into the directory of each gateway's --webhook-secrets", name, err)
	}
	var keys []webhookKey
	for line := range strings.Lines(text) {
		secret := strings.TrimSpace(line)
		if secret == "" {
			continue
		}
		if _, err := secretKey(secret); err != nil || len(keys) == maxSecretLines {
			return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the file %s among this gateway's secrets has to have 1 to %d lines, each %s followed by %d to %d bytes in base64", name, maxSecretLines, secretPrefix, secretLeast, secretMost)
		}
		keys = append(keys, webhookKey{Secret: secret})
	}
	if len(keys) == 0 {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the file %s among this gateway's secrets is empty: put a secret into it", name)
	}
	return keys, nil
}

// readSecrets reads a file that is no larger than it may be.
func readSecrets(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", reason(err)
	}
	defer f.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile))
	return string(text), reason(err)
}

// reason is err without the path, which is the gateway's own; nil for nil.
func reason(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

// checkSecretFile refuses a name that could lead out of the directory.
func checkSecretFile(name string) error {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
	}
	if len(name) > maxSecretName || strings.HasPrefix(name, ".") || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return protocol.Errorf(protocol.CodeInvalidArgs, "secret_file is %.64q: it is the name of a file, not a path, of A-Z a-z 0-9 . _ -, does not begin with a dot and has at most %d bytes", name, maxSecretName)
	}
	return nil
}

// keysOf sign a webhook's calls.
func (h *webhooks) keysOf(d *webhookDoc) ([]webhookKey, error) {
	if d.SecretFile == "" {
		return d.Keys, nil
	}
	return h.secrets.keys(d.SecretFile)
}
