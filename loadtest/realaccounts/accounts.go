package realaccounts

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// The environment variables that name the accounts, and how many there may be.
const (
	variable      = "QUEUEPUMP_AZURE_"
	tableVariable = "_TABLE"
	blobVariable  = "_BLOB"
	versionName   = variable + "SERVICE_VERSION"
	maxAccounts   = 9
)

// Account is a storage account as the environment names it.
type Account struct {
	// Connection is a connection string, or the address of the queue service with a SAS or
	// without one. Without one azidentity's default credential is used.
	Connection string
	// Table is the address of the table service, where it does not follow from the other one.
	Table string
	// Blob is likewise the address of the blob service.
	Blob string
	// ServiceVersion is as in pump.yaml.
	ServiceVersion string
}

// errNotConfigured says that the environment names no account, and what to set.
var errNotConfigured = errors.New(`no account is named. Set

  QUEUEPUMP_AZURE_1='DefaultEndpointsProtocol=https;AccountName=...;AccountKey=...'
      a connection string, as the portal shows it under "Access keys"; or
  QUEUEPUMP_AZURE_1='https://NAME.queue.core.windows.net/?sv=...&sig=...'
      the address of the queue service with an account SAS for all three services (services bqt,
      resource types sco, permissions rwdlacup); or
  QUEUEPUMP_AZURE_1=https://NAME.queue.core.windows.net
      the address alone. The credential is then what azidentity finds: AZURE_CLIENT_ID and the
      like, a managed identity, or the login of az. It needs the roles "Storage Queue Data
      Contributor", "Storage Table Data Contributor" and, for blobs, "Storage Blob Data
      Contributor"; the first two stand in what
      ` + "`distributor generate bicep`" + ` and
      ` + "`distributor generate terraform`" + ` write down

and in the same way QUEUEPUMP_AZURE_2 to _9 for more accounts. Optional:

  QUEUEPUMP_AZURE_1_TABLE, _BLOB    that service's address, if not .table. or .blob. for .queue.
  QUEUEPUMP_AZURE_SERVICE_VERSION   a version such as 2019-07-07, for clouds that know no newer one

Use accounts that are there for such things: their limits are shared with whatever else uses them.
Nothing was done`)

// fromEnvironment reads the variables. Their numbers begin with 1 and have no gap.
func fromEnvironment(lookup func(string) string) ([]Account, error) {
	var accounts []Account
	missing := ""
	for i := 1; i <= maxAccounts; i++ {
		name := fmt.Sprint(variable, i)
		a := Account{
			Connection: strings.TrimSpace(lookup(name)),
			Table:      strings.TrimSpace(lookup(name + tableVariable)),
			Blob:       strings.TrimSpace(lookup(name + blobVariable)), ServiceVersion: lookup(versionName),
		}
		switch {
		case a.Connection == "" && a.Table != "":
			return nil, fmt.Errorf("%s%s is set and %s is not", name, tableVariable, name)
		case a.Connection == "":
			missing = name
		case missing != "":
			return nil, fmt.Errorf("%s is set and %s is not", name, missing)
		default:
			if _, err := a.open(nil); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			accounts = append(accounts, a)
		}
	}
	if len(accounts) == 0 {
		return nil, errNotConfigured
	}
	return accounts, nil
}

// target is an account under trial.
type target struct {
	Account
	name                  string
	queues, tables, blobs string // addresses; blobs is empty if it is not known

	spoiled atomic.Bool // its requests are sent with a wrong credential
}

// targetsOf are the accounts by the names and addresses that the driver finds.
func targetsOf(accounts []Account) (targets []*target, err error) {
	for _, a := range accounts {
		of, err := a.open(nil)
		if err != nil {
			return nil, err
		}
		t := &target{Account: a, name: of.Name(), queues: of.Endpoint(), tables: of.TableEndpoint()}
		t.blobs = of.BlobEndpoint()
		same := func(other *target) bool { return other.name == t.name || other.queues == t.queues }
		if slices.ContainsFunc(targets, same) {
			return nil, fmt.Errorf("account %s is named twice", t.name)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// connectionString reports whether the account is named by one rather than by an address.
func (a Account) connectionString() bool {
	return !strings.HasPrefix(a.Connection, "https://") && !strings.HasPrefix(a.Connection, "http://")
}

// options are the driver's.
func (a Account) options() azure.Options {
	o := azure.Options{
		TableEndpoint: a.Table, BlobEndpoint: a.Blob, ServiceVersion: a.ServiceVersion,
	}
	if a.connectionString() {
		o.ConnectionString = a.Connection
	} else {
		o.Endpoint = a.Connection
	}
	return o
}

// opened is what the driver knows beyond the contract of package storage.
type opened interface {
	storage.Account
	asker
	Endpoint() string
	TableEndpoint() string
	BlobEndpoint() string
}

// open opens the account through a transport, nil for the driver's own.
func (a Account) open(transport storagetest.Doer) (opened, error) {
	o := a.options()
	if transport != nil {
		o.Transport = transport
	}
	account, err := azure.Open(o)
	if err != nil {
		return nil, err
	}
	of, ok := account.(opened)
	if !ok {
		return nil, fmt.Errorf("the driver's %T cannot be asked", account)
	}
	if of.TableEndpoint() == "" {
		return nil, errors.New("the address of its table service is not known: " +
			"set the variable that ends in " + tableVariable)
	}
	return of, nil
}

// fields are the parts of the connection string, by their names in small letters.
func (a Account) fields() map[string]string {
	fields := map[string]string{}
	for part := range strings.SplitSeq(a.Connection, ";") {
		name, value, _ := strings.Cut(part, "=")
		fields[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	return fields
}

// development is the key of the emulators' account, which Microsoft publishes.
const development = "AccountName=devstoreaccount1;AccountKey=" +
	"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

// at is the same account with the same credential at other addresses: it signs requests as if they
// went to the account itself, because a signature does not cover the address's host.
func (a Account) at(queues, tables, blobs string) Account {
	moved := Account{ServiceVersion: a.ServiceVersion}
	if !a.connectionString() {
		moved.Connection = withQuery(queues, queryOf(a.Connection))
		moved.Table, moved.Blob = withQuery(tables, queryOf(a.Table)), withQuery(blobs, queryOf(a.Blob))
		return moved
	}
	f := a.fields()
	if strings.EqualFold(f["usedevelopmentstorage"], "true") {
		f = Account{Connection: development}.fields()
	}
	var b strings.Builder
	for _, name := range []string{"AccountName", "AccountKey", "SharedAccessSignature"} {
		if value := f[strings.ToLower(name)]; value != "" {
			fmt.Fprintf(&b, "%s=%s;", name, value)
		}
	}
	fmt.Fprintf(&b, "QueueEndpoint=%s;TableEndpoint=%s;BlobEndpoint=%s",
		withQuery(queues, queryOf(f["queueendpoint"])), withQuery(tables, queryOf(f["tableendpoint"])),
		withQuery(blobs, queryOf(f["blobendpoint"])))
	moved.Connection = b.String()
	return moved
}

func queryOf(address string) string {
	_, query, _ := strings.Cut(address, "?")
	return query
}

func withQuery(address, query string) string {
	if query == "" {
		return address
	}
	return address + "?" + query
}

// credential says in a word how the account is opened, for the report.
func (a Account) credential() string {
	switch f := a.fields(); {
	case !a.connectionString() && queryOf(a.Connection) == "":
		return "token"
	case !a.connectionString(), f["accountkey"] == "" && f["usedevelopmentstorage"] == "":
		return "shared access signature"
	}
	return "key"
}

// secrets are the texts that must not stand in a report.
func (a Account) secrets() (found []string) {
	add := func(query string) {
		values, err := url.ParseQuery(query)
		if sig := values.Get("sig"); err == nil && sig != "" {
			found = append(found, sig, url.QueryEscape(sig))
		}
	}
	f := a.fields()
	if key := f["accountkey"]; key != "" {
		found = append(found, key)
	}
	for _, query := range []string{
		f["sharedaccesssignature"], queryOf(f["queueendpoint"]), queryOf(f["tableendpoint"]),
		queryOf(f["blobendpoint"]), queryOf(a.Connection), queryOf(a.Table), queryOf(a.Blob),
	} {
		add(strings.TrimPrefix(query, "?"))
	}
	return found
}
