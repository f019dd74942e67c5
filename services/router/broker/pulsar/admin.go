//go:build !no_pulsar

package pulsar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// What the admin interface says besides that it was done.
var (
	errNotThere     = errors.New("there is no such thing")
	errAlreadyThere = errors.New("it is there already")
)

// admin is the broker's admin interface.
type admin struct {
	client http.Client
	base   string
	token  string
	space  string // tenant and namespace
}

// do asks for something below the base. What is nil is neither sent nor read.
func (a *admin) do(ctx context.Context, method, path string, body, into any) error {
	var sent io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, sent)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if a.token != "" {
		request.Header.Set("Authorization", "Bearer "+a.token)
	}
	answer, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if err := statusOf(answer.StatusCode, said); err != nil || into == nil {
		return err
	}
	return json.Unmarshal(said, into)
}

func statusOf(status int, said []byte) error {
	const most = 200
	switch {
	case status < http.StatusMultipleChoices:
		return nil
	case status == http.StatusNotFound:
		return errNotThere
	case status == http.StatusConflict:
		return errAlreadyThere
	}
	return fmt.Errorf("it answers %d: %.*s", status, most, said)
}

// pathOf is a topic's, given by its whole name.
func pathOf(topic string) string {
	at := strings.Split(strings.Replace(topic, "://", "/", 1), "/")
	for i := range at {
		at[i] = url.PathEscape(at[i])
	}
	return strings.Join(at, "/")
}

// makeTopic makes a topic, unless it is there. One that somebody has made in partitions
// would be counted, and removed, as if it were empty.
func (a *admin) makeTopic(ctx context.Context, topic string) error {
	err := a.do(ctx, http.MethodPut, pathOf(topic), nil, nil)
	if !errors.Is(err, errAlreadyThere) {
		return err
	}
	var there struct {
		Partitions int `json:"partitions"`
	}
	if err := a.do(ctx, http.MethodGet, pathOf(topic)+"/partitions", nil, &there); err != nil || there.Partitions == 0 {
		return unless(errNotThere, err)
	}
	return protocol.Errorf(protocol.CodeConflict, "the topic %s is there with %d partitions, and a queue has none: have somebody take what it holds and remove it (pulsar-admin topics delete-partitioned-topic), or use another name",
		topic, there.Partitions)
}

// removeTopic removes it with all that it holds, whoever uses it.
func (a *admin) removeTopic(ctx context.Context, topic string) error {
	return unless(errNotThere, a.do(ctx, http.MethodDelete, pathOf(topic)+"?force=true", nil, nil))
}

func unless(expected, err error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// position is where a subscription begins.
//
//nolint:tagliatelle // Pulsar's own names
type position struct {
	LedgerID int64 `json:"ledgerId"`
	EntryID  int64 `json:"entryId"`
	Index    int   `json:"partitionIndex"`
}

var (
	earliest = position{-1, -1, -1}
	latest   = position{1<<63 - 1, 1<<63 - 1, -1}
)

// subscribe makes a subscription, unless it is there.
func (a *admin) subscribe(ctx context.Context, topic, subscription string, from position) error {
	err := a.do(ctx, http.MethodPut, pathOf(topic)+"/subscription/"+url.PathEscape(subscription), from, nil)
	return unless(errAlreadyThere, err)
}

func (a *admin) unsubscribe(ctx context.Context, topic, subscription string) error {
	err := a.do(ctx, http.MethodDelete, pathOf(topic)+"/subscription/"+url.PathEscape(subscription)+"?force=true", nil, nil)
	return unless(errNotThere, err)
}

// subscribed is what the broker says of a subscription.
//
//nolint:tagliatelle // Pulsar's own names
type subscribed struct {
	Backlog int64 `json:"msgBacklog"` // not acknowledged
	Delayed int64 `json:"msgDelayed"` // of these, those it knows to be delayed
}

// count is what a subscription has, nothing if it is not there.
func (a *admin) count(ctx context.Context, topic, subscription string) (subscribed, error) {
	var stats struct {
		Subscriptions map[string]subscribed `json:"subscriptions"`
	}
	err := a.do(ctx, http.MethodGet, pathOf(topic)+"/stats?getPreciseBacklog=true&subscriptionBacklogSize=false&excludePublishers=true&excludeConsumers=true", nil, &stats)
	return stats.Subscriptions[subscription], unless(errNotThere, err)
}

// defaultLargest is the largest message that a broker takes which does not say.
const defaultLargest = 5 << 20

// largest is the largest message that the broker takes. To ask for it is not everybody's
// right.
func (a *admin) largest(ctx context.Context) int {
	var set map[string]string
	if a.do(ctx, http.MethodGet, "brokers/configuration/runtime", nil, &set) != nil {
		return defaultLargest
	}
	n, err := strconv.Atoi(set["maxMessageSize"])
	if err != nil {
		return defaultLargest
	}
	return n
}
