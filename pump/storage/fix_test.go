package storage

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestAFailureThatOperatorsCanMendSaysHow(t *testing.T) {
	refused := fmt.Errorf("dial tcp 127.0.0.1:1: connect: %w", syscall.ECONNREFUSED)
	for _, tt := range []struct {
		name     string
		err      error
		fix      string
		hopeless bool
	}{
		{"a wrong name", &Error{Err: errors.New("dial tcp: lookup x.queue.core.windows.net: no such host")}, "account's name", true},
		{"a closed port of this machine", &Error{Err: refused}, "loadtest serve", true},
		{"a closed port elsewhere", &Error{Err: errors.New("dial tcp 10.0.0.4:443: connect: connection refused")}, "firewall", false},
		{"a certificate", &Error{Err: errors.New("tls: failed to verify certificate: x509: unknown authority")}, "certificates", false},
		{"silence", &Error{Err: errors.New("context deadline exceeded")}, "network", false},
		{"a wrong key", &Error{Code: Auth, Status: 403, Service: "AuthenticationFailed"}, "key", false},
		{"an old date", &Error{Code: Auth, Status: 403, Service: "AuthenticationFailed", Err: errors.New("Request date header too old: 'x'")}, "clock", false},
		{"no role", &Error{Code: Auth, Status: 403, Service: "AuthorizationPermissionMismatch"}, "Storage Table Data Contributor", false},
		{"a signature without a right", &Error{Code: Auth, Status: 403, Service: "AuthorizationPermissionMismatch", Err: errors.New("not authorized (by its shared access signature)")}, "permissions rwdlacup", false},
		{"a signature to come", &Error{Code: Auth, Status: 403, Service: "AuthenticationFailed", Err: errors.New("(its shared access signature begins only at 2030-01-01T00:00:00Z)")}, "wait until then", false},
		{"a signature that was", &Error{Code: Auth, Status: 403, Service: "AuthenticationFailed", Err: errors.New("(its shared access signature has ended at 2020-01-01T00:00:00Z)")}, "another signature", false},
		{"a dead proxy here", &Error{Err: errors.New("proxyconnect tcp: dial tcp 127.0.0.1:3999: connect: connection refused")}, "HTTPS_PROXY", true},
		{"a proxy without a name", &Error{Err: errors.New("proxyconnect tcp: dial tcp: lookup proxy.corp: no such host")}, "HTTPS_PROXY", true},
		{"a firewall", &Error{Code: Auth, Status: 403, Service: "AuthorizationFailure"}, "firewall", false},
		{"a disabled account", &Error{Code: Missing, Status: 403, Service: "AccountIsDisabled"}, "enable", false},
		{"an error of the service", &Error{Status: 500, Service: "InternalError"}, "", false},
		{"another error", errors.New("no such host"), "", false},
	} {
		err := fmt.Errorf("wrapped: %w", tt.err)
		if got := Fix(err); tt.fix == "" && got != "" || !strings.Contains(got, tt.fix) {
			t.Errorf("%s: fix %q", tt.name, got)
		}
		if Hopeless(err) != tt.hopeless {
			t.Errorf("%s: hopeless %v", tt.name, !tt.hopeless)
		}
		if strings.Contains(err.Error(), "maybe-done") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
