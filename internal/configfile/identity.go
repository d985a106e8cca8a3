package configfile

import (
	"errors"
	"os"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/goccy/go-yaml/ast"
)

// identity says whose token opens an account: a managed identity's, or with a tenant a service
// principal's.
type identity struct {
	client, tenant, secret, certificate string
	pem                                 string // what the certificate's file holds
}

// credentials are those of this process. Accounts of one identity share its tokens, also when the
// file is read again.
var credentials struct {
	sync.Mutex
	of map[identity]azcore.TokenCredential
}

// identity reads accounts[].identity.
func (d *decoder) identity(path string, n ast.Node) azcore.TokenCredential {
	var id identity
	text := func(to *string) func(string, ast.Node) {
		return func(path string, n ast.Node) { *to, _ = d.text(path, n) }
	}
	failed := len(d.errs)
	d.mapping(path, n, []field{
		{"client", text(&id.client)},
		{"tenant", text(&id.tenant)},
		{"secret", text(&id.secret)},
		{"certificate", text(&id.certificate)},
	})
	if len(d.errs) > failed {
		return nil
	}
	switch principal := id.secret != "" || id.certificate != ""; {
	case id.client == "":
		d.fail(line(n), path, "has no client",
			"write `client: system` for the machine's managed identity, or the "+
				"client id of another identity")
		return nil
	case principal && id.tenant == "", !principal && id.tenant != "":
		d.fail(line(n), path, "is neither a managed identity nor a service principal",
			"keep client only, or add tenant and one of secret and certificate")
		return nil
	case id.secret != "" && id.certificate != "":
		d.fail(line(n), path, "has a secret and a certificate", "keep one of the two")
		return nil
	}
	c, err := id.credential()
	if err != nil {
		d.fail(line(n), path, "cannot be used: "+err.Error(),
			"see Azure without keys in docs/configuration.md")
		return nil
	}
	return c
}

// credential gives the one credential of an identity.
func (id identity) credential() (azcore.TokenCredential, error) {
	if id.certificate != "" {
		text, err := os.ReadFile(besideCredentials(id.certificate))
		if err != nil {
			return nil, err
		}
		id.pem = string(text)
	}
	credentials.Lock()
	defer credentials.Unlock()
	if c := credentials.of[id]; c != nil {
		return c, nil
	}
	c, err := id.open()
	if err != nil {
		return nil, err
	}
	if credentials.of == nil {
		credentials.of = map[identity]azcore.TokenCredential{}
	}
	credentials.of[id] = c
	return c, nil
}

// open makes the credential; no request is made. Its errors hold no secret.
func (id identity) open() (azcore.TokenCredential, error) {
	switch {
	case id.secret != "":
		c, err := azidentity.NewClientSecretCredential(id.tenant, id.client, id.secret, nil)
		if err != nil {
			return nil, errors.New("tenant or client is not one of Azure's")
		}
		return c, nil
	case id.certificate != "":
		certs, key, err := azidentity.ParseCertificates([]byte(id.pem), nil)
		if err != nil {
			return nil,
				errors.New("the certificate's file holds no certificate and key, as PEM or " +
					"PKCS#12 without a password")
		}
		c, err := azidentity.NewClientCertificateCredential(id.tenant, id.client, certs, key, nil)
		if err != nil {
			return nil,
				errors.New("tenant or client is not one of Azure's, or the certificate's key is not of RSA")
		}
		return c, nil
	case id.client == "system":
		return managed(nil)
	}
	return managed(&azidentity.ManagedIdentityCredentialOptions{ID: azidentity.ClientID(id.client)})
}

func managed(o *azidentity.ManagedIdentityCredentialOptions) (azcore.TokenCredential, error) {
	c, err := azidentity.NewManagedIdentityCredential(o)
	if err != nil {
		return nil, errors.New("the client id is not one of Azure's")
	}
	return c, nil
}
