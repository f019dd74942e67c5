package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// answerGuard bounds one question: Artemis has been seen not to answer one to remove a
// queue that went with its connection at that moment.
const answerGuard = 20 * time.Second

// ask asks a server over HTTP, in JSON. What is nil is neither sent nor read.
func ask(method, url string, body, into any) error {
	text := []byte{}
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerGuard)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Close = true // no connection stays behind
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", answer.Status, said)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(said, into)
}
