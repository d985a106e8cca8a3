package storage

import (
	"errors"
	"slices"
	"strings"
	"syscall"
)

// Fix says what an operator can do about a failure, empty if nothing is known. It reads the text
// where an error's chain was cut off to keep secrets out of it.
func Fix(err error) string {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return ""
	}
	switch text := e.Error(); {
	case e.Code == Auth:
		return fixAuth(e, text)
	case e.Service == "AccountIsDisabled":
		return "enable the account, or take it out of the configuration"
	case e.Code != MaybeDone || e.Status != 0:
		return ""
	case strings.Contains(text, "proxyconnect"):
		return "start the proxy that HTTPS_PROXY names, or take it out of this process's environment"
	case unknownHost(e):
		return "check the account's name and endpoint: no account is found under that name"
	case refusedConnection(e) && local(text):
		return "start what serves the account on this machine, for example: loadtest serve"
	case refusedConnection(e):
		return "check the account's endpoint and port, and the firewall on the way there"
	case strings.Contains(text, "x509:"), strings.Contains(text, "tls:"):
		return "check the endpoint, this machine's clock and certificates, and what inspects TLS on " +
			"the way"
	}
	return "check this machine's network, its proxy (HTTPS_PROXY), and the account's firewall and " +
		"private endpoints"
}

func fixAuth(e *Error, text string) string {
	switch {
	case strings.Contains(text, "clock"), strings.Contains(text, "Request date header too old"):
		return "set this machine's clock"
	case e.Service == "AuthorizationFailure":
		return "allow this machine in the account's firewall, or this credential to do it"
	case strings.Contains(text, "signature begins only"):
		return "wait until then, or give another signature"
	case strings.Contains(text, "signature has ended"):
		return "give another signature"
	case strings.HasPrefix(e.Service, "Authorization") && strings.Contains(text, "access signature"):
		return "make a shared access signature of the account with services bqt (qt without blobs), " +
			"resource types sco and permissions rwdlacup"
	case strings.HasPrefix(e.Service, "Authorization"):
		return `give the identity the roles "Storage Queue Data Contributor" and ` +
			`"Storage Table Data Contributor" on the account, and "Storage Blob Data Contributor" if it ` +
			`holds blobs; a new assignment takes minutes`
	}
	return "check the account's key or shared access signature in the configuration, whether it has " +
		"expired, and this machine's clock"
}

// Hopeless reports whether a failure says that the account does not exist, which a short wait does
// not mend: its name is unknown, or this machine should serve it and does not.
func Hopeless(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == MaybeDone && e.Status == 0 &&
		(unknownHost(e) || refusedConnection(e) && local(e.Error()))
}

func unknownHost(e *Error) bool { return strings.Contains(e.Error(), "no such host") }

func refusedConnection(e *Error) bool {
	return errors.Is(e, syscall.ECONNREFUSED) || strings.Contains(e.Error(), "connection refused")
}

// local reports whether a failed dial was to this machine.
func local(text string) bool {
	return slices.ContainsFunc([]string{"tcp 127.", "tcp [::1]", "localhost"}, func(host string) bool {
		return strings.Contains(text, host)
	})
}
