package azure

import (
	"net/http"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestTheDateOfAnAccountIsToldByRefusalsToo(t *testing.T) {
	at := time.Date(2026, 11, 24, 21, 2, 3, 0, time.UTC)
	date := func(f *fake) (time.Time, error) {
		return openFake(t, f).(*account).Date(t.Context())
	}
	header := http.Header{"Date": {at.Format(http.TimeFormat)}}
	for _, status := range []int{http.StatusOK, http.StatusForbidden, http.StatusServiceUnavailable} {
		f := &fake{status: status, header: header}
		if got, err := date(f); err != nil || !got.Equal(at) || f.calls.Load() != 1 {
			t.Errorf("%d: %v, %v, %d calls", status, got, err, f.calls.Load())
		}
	}
	if _, err := date(&fake{status: http.StatusOK}); !storage.Is(err, storage.MaybeDone) {
		t.Errorf("without a date: %v", err)
	}
	if _, err := date(&fake{err: http.ErrServerClosed}); !storage.Is(err, storage.MaybeDone) {
		t.Errorf("without an answer: %v", err)
	}
}

func TestTheHostsOfAnAccountAreWithoutCredentials(t *testing.T) {
	for endpoint, want := range map[string][2]string{
		"https://acct.queue.core.windows.net?sig=secretsecret": {"acct.queue.core.windows.net", "acct.table.core.windows.net"},
		"http://127.0.0.1:10001/acct?sig=secretsecret":         {"127.0.0.1", ""},
	} {
		a, err := Open(Options{Endpoint: endpoint})
		must(t, err)
		proof.Same(t, a.(*account).Endpoint()+"?sig=secretsecret", endpoint)
		queue, table := a.(*account).Hosts()
		proof.Same(t, [2]string{queue, table}, want, endpoint, queue, table)
	}
}
