package azure

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

const (
	// sdkTableVersion is what aztables asks for.
	sdkTableVersion = "2019-02-02"
	// oldestVersion is the first that lets a message stay for ever, as the pump's messages do.
	oldestVersion = "2017-07-29"
	versionForm   = time.DateOnly
)

// CheckServiceVersion judges a text as Options.ServiceVersion. Whether the service knows the
// version shows only at the first request.
func CheckServiceVersion(v string) error {
	const fix = "write a date such as 2019-07-07, or leave it out"
	if v == "" {
		return nil
	}
	if _, err := time.Parse(versionForm, v); err != nil {
		return fmt.Errorf("%.40q is not a version of the services; %s", v, fix)
	}
	if v < oldestVersion {
		return fmt.Errorf("%s is older than %s, the first in which messages do not expire; %s", v,
			oldestVersion, fix)
	}
	return nil
}

// unknownVersion is the end of the message if a service may not know the version.
const unknownVersion = " If the account does not know the service version that it was asked for, " +
	"set serviceVersion to one that it knows."

// perhapsVersion reports whether the header that a service refused may be the version: the answer
// names that header or, as tables answer, none.
func perhapsVersion(answer []byte) bool {
	_, named, ok := strings.Cut(string(answer), "<HeaderName>")
	return !ok || strings.HasPrefix(strings.ToLower(named), "x-ms-version<")
}

// speaks is the policy that asks for another version than the SDK's. It stands before the policies
// that sign.
type speaks string

func (v speaks) Do(req *policy.Request) (*http.Response, error) {
	h := req.Raw().Header
	for name := range h { // azqueue writes it in small letters
		if strings.EqualFold(name, "x-ms-version") {
			delete(h, name)
		}
	}
	h.Set("X-Ms-Version", string(v))
	return req.Next()
}
