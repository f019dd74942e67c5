package scope

import "testing"

func TestTemplate(t *testing.T) {
	for queue, want := range map[string]string{
		"/queue/run-1/files.parse":      "files.parse",
		"orders.created::observer:mail": "orders.created::observer:mail",
		"orders::@billing":              "orders::@billing",
		"orders::listen:0a1b:2c":        "orders::listen",
	} {
		if got := Template(queue); got != want {
			t.Errorf("Template(%q) is %q, want %q", queue, got, want)
		}
		folded := Folded(queue)
		if !IsFolded(folded) || IsFolded(queue) || Template(folded) != want {
			t.Errorf("%q is folded into %q, whose template is %q", queue, folded, Template(folded))
		}
		if _, _, err := ParseScoped(folded); err == nil {
			t.Errorf("%q is the name of a queue", folded)
		}
	}
}
