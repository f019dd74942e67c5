package gateway

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// A webhook's calls are signed as Standard Webhooks says.
const (
	secretPrefix = "whsec_"
	secretBytes  = 32
	secretLeast  = 24
	secretMost   = 64
)

// newSecret is the given secret, or a random one for "".
func newSecret(given string) (string, error) {
	if given == "" {
		b := make([]byte, secretBytes)
		_, _ = rand.Read(b) // never fails
		return secretPrefix + base64.StdEncoding.EncodeToString(b), nil
	}
	_, err := secretKey(given)
	return given, err
}

// secretKey is what a secret stands for. The error does not repeat it.
func secretKey(secret string) ([]byte, error) {
	encoded, prefixed := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !prefixed || err != nil || len(key) < secretLeast || len(key) > secretMost {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the secret is not %s followed by %d to %d bytes in base64: leave it out for a random one", secretPrefix, secretLeast, secretMost)
	}
	return key, nil
}

// signatures of a call, one for each key that still signs.
func signatures(keys []webhookKey, id string, at time.Time, payload []byte) (string, error) {
	var all []string
	for _, k := range keys {
		if !k.Until.IsZero() && at.After(k.Until) {
			continue
		}
		key, err := secretKey(k.Secret)
		if err != nil {
			return "", err
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(payload)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " "), nil
}
