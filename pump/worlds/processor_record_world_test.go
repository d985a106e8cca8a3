package worlds

import (
	"testing"
)

func onceWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	inOnceWorld(t, 1, 2, nil, test)
}
