package configfile

import (
	"errors"
	"os"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// identity says whose token opens an account: that of a managed identity or, with a tenant, of a
// service principal.
type identity struct {
	client, tenant, secret, certificate string
	pem                                 string // what the certificate's file holds
}

// credentials are those of this process. Accounts of one identity share its tokens, also when the
// file is read again.
var credentials = struct {
	sync.Mutex
	of map[identity]azcore.TokenCredential
}{of: map[identity]azcore.TokenCredential{}}

// identity gives the fields of accounts[].identity; c gets the credential that they describe.
func (d *decoder) identity(c *azcore.TokenCredential) group {
	var id identity
	return group{[]field{
		{name: "client", to: &id.client},
		{name: "tenant", to: &id.tenant},
		{name: "secret", to: &id.secret},
		{name: "certificate", to: &id.certificate},
	}, func(path string, ok bool) {
		if !ok {
			return
		}
		principal := id.secret != "" || id.certificate != ""
		var err error
		switch {
		case id.client == "":
			d.fail(path, "has no client", "write `client: system` for the machine's managed "+
				"identity, or the client id of another identity")
		case principal != (id.tenant != ""):
			d.fail(path, "is neither a managed identity nor a service principal",
				"keep client only, or add tenant and one of secret and certificate")
		case id.secret != "" && id.certificate != "":
			d.fail(path, "has a secret and a certificate", "keep one of the two")
		default:
			*c, err = id.credential()
		}
		if err != nil {
			d.fail(path, "cannot be used: "+err.Error(), "see Azure without keys in docs/configuration.md")
		}
	}}
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
	credentials.of[id] = c
	return c, nil
}

// open makes the credential; no request is made. Its errors hold no secret.
func (id identity) open() (c azcore.TokenCredential, err error) {
	problem := "tenant or client is not one of Azure's"
	switch {
	case id.secret != "":
		c, err = azidentity.NewClientSecretCredential(id.tenant, id.client, id.secret, nil)
	case id.certificate != "":
		certs, key, bad := azidentity.ParseCertificates([]byte(id.pem), nil)
		if bad != nil {
			return nil, errors.New("the certificate's file holds no certificate and key, as PEM or " +
				"PKCS#12 without a password")
		}
		problem += ", or the certificate's key is not of RSA"
		c, err = azidentity.NewClientCertificateCredential(id.tenant, id.client, certs, key, nil)
	default:
		problem = "the client id is not one of Azure's"
		o := azidentity.ManagedIdentityCredentialOptions{}
		if id.client != "system" {
			o.ID = azidentity.ClientID(id.client)
		}
		c, err = azidentity.NewManagedIdentityCredential(&o)
	}
	if err != nil {
		return nil, errors.New(problem)
	}
	return c, nil
}
