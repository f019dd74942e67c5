package scope_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

func TestRoute(t *testing.T) {
	cases := []struct{ execution, name, route string }{
		{"E1", "scraping.tasks", "scraping.tasks"},
		{"E1", "/queue/scraping.tasks", "scraping.tasks"},
		{"E1", "/queue/E1/scraping.tasks", "scraping.tasks"},
		{"E1", "E1", "E1"},
		{"E1", "/queue/E1", "E1"},
		{"E1", "/queue/E1/E1", "E1"},
		{"E1", "queue", "queue"},
	}
	for _, c := range cases {
		if route, err := scope.Route(c.execution, c.name); err != nil || route != c.route {
			t.Errorf("Route(%q, %q) = %q, %v; want %q", c.execution, c.name, route, err, c.route)
		}
	}
}

func TestRouteRefuses(t *testing.T) {
	cases := []struct{ execution, name, says string }{
		{"E1", "/queue/E2/r", `belongs to execution "E2"`},
		{"E1", "/queue/E10/r", `belongs to execution "E10"`},
		{"E10", "/queue/E1/r", `belongs to execution "E1"`},
		{"E1", "/queue/*/r", `belongs to execution "*"`},
		{"E1", "/queue//r", "belongs to execution"},
		{"E1", "/queue/E1/", "is empty"},
		{"E1", "/queue/", "is empty"},
		{"E1", "/queue/E1/a/b", "has '/'"},
		{"E1", "/queue/queue/E1/r", `belongs to execution "queue"`},
		{"E1", "/queue//queue/E1/r", "belongs to execution"},
		{"E1", "queue/E1/r", "has '/'"},
		{"E1", "/topic/t", "has '/'"},
		{"E1", "/QUEUE/r", "has '/'"},
		{"E1", ">", "has '>'"},
		{"*", "r", "execution id"},
		{"", "r", "execution id"},
		{"a.b", "r", "execution id"},
	}
	for _, c := range cases {
		_, err := scope.Route(c.execution, c.name)
		if protocol.CodeOf(err) != protocol.CodeInvalidName || !strings.Contains(err.Error(), c.says) {
			t.Errorf("Route(%q, %q): %v; want INVALID_NAME saying %q", c.execution, c.name, err, c.says)
		}
	}
}

// However a name is written, it becomes the same scoped name, and a scoped
// name stays what it is.
func TestRoutePrefixIsNeverDoubled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		execution, name := token().Draw(t, "execution"), hostile().Draw(t, "name")
		route, err := scope.Route(execution, name)
		if err != nil {
			return
		}
		scoped := scope.ScopedName(execution, route)
		for _, form := range []string{route, scope.QueuePrefix + route, scoped} {
			if again, err := scope.Route(execution, form); err != nil || again != route {
				t.Fatalf("%q is %q, and %q is %q, %v", name, route, form, again, err)
			}
		}
		if e, r, err := scope.ParseScoped(scoped); err != nil || e != execution || r != route {
			t.Fatalf("%q parses as %q, %q, %v", scoped, e, r, err)
		}
	})
}

func TestParseScopedRefuses(t *testing.T) {
	for _, name := range []string{"", "r", "/queue/r", "/queue//r", "/queue/E/", "/queue/E/a/b", "/queue/E/r.dlq", "/queue/*/r", "/topic/t", "queue/E/r", "/queue/E/a b"} {
		if e, r, err := scope.ParseScoped(name); protocol.CodeOf(err) != protocol.CodeInvalidName {
			t.Errorf("%q is taken for %q, %q, %v", name, e, r, err)
		}
	}
}

func TestTopic(t *testing.T) {
	for name, want := range map[string]string{"t": "t", "/topic/orders.created": "orders.created", "a:b": "a:b"} {
		if topic, err := scope.Topic(name); err != nil || topic != want {
			t.Errorf("Topic(%q) = %q, %v", name, topic, err)
		}
	}
	for _, name := range []string{"", "/topic/", "/queue/t", "/topic/a/b", "/topic//topic/a", "a b", "t.*"} {
		if topic, err := scope.Topic(name); protocol.CodeOf(err) != protocol.CodeInvalidName {
			t.Errorf("Topic(%q) = %q, %v", name, topic, err)
		}
	}
}

func TestSubscriptionName(t *testing.T) {
	for execution, want := range map[string]string{
		"019ce6d0-7b1c-7000-8000-0123456789ab": "web-scraper:019ce6d0",
		"12345678":                             "web-scraper:12345678",
		"E1":                                   "web-scraper:E1",
	} {
		if got := scope.SubscriptionName("web-scraper", execution); got != want {
			t.Errorf("in %s: %q, want %q", execution, got, want)
		}
	}
}
