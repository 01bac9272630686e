package nearest

import "testing"

func TestOf(t *testing.T) {
	words := []string{"wait", "ttl", "grace", "max-runtime", "hold-at-least", "on-lost"}
	for in, want := range map[string]string{
		"wiat":       "wait",
		"wai":        "wait",
		"tll":        "ttl",
		"maxruntime": "max-runtime",
		"on_lost":    "on-lost",
		"gracé":      "grace",
		"verbose":    "",
		"x":          "",
		"":           "",
	} {
		if got := Of(in, words); got != want {
			t.Errorf("Of(%q) = %q, want %q", in, got, want)
		}
	}
}
