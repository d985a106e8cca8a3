package azure

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"golang.org/x/sync/semaphore"

	"github.com/queuepump/queuepump/pump/storage"
)

// Options names one storage account and how to get in. Either ConnectionString
// or Endpoint must be given.
type Options struct {
	// ConnectionString is what the portal shows under "Access keys" or "Shared
	// access signature". UseDevelopmentStorage=true means an emulator on the
	// default ports of this machine.
	ConnectionString string

	// Endpoint is the queue service, https://NAME.queue.core.windows.net, with
	// a SAS behind a question mark or without one. Without, Credential is used.
	Endpoint string
	// TableEndpoint is the table service. Default: Endpoint with ".queue."
	// turned into ".table.", and Endpoint's SAS. Where that cannot be done (an
	// address with a port) queues work and tables are refused as Invalid.
	TableEndpoint string
	// BlobEndpoint is the blob service, with a default as TableEndpoint has one. Where it is not known
	// blobs are refused as Invalid.
	BlobEndpoint string

	// Name is the account's name in logs and metrics. Default: the name in the
	// connection string, else the first label of the endpoint's host, else (path style)
	// the last element of its path.
	Name string

	// Credential authorises an Endpoint that has no SAS. Default: one
	// azidentity.DefaultAzureCredential for the whole process.
	Credential azcore.TokenCredential

	// Transport sends the requests. Default: one client of [NewTransport] for
	// the whole process. A transport must not retry and must not follow redirects.
	Transport policy.Transporter

	// ServiceVersion is the version of the services that requests are written for (x-ms-version), such
	// as 2019-07-07, from 2017-07-29 on. Default: what azqueue and aztables ask for. A sovereign cloud
	// or an Azure Stack may know only older ones.
	ServiceVersion string

	// AllowHTTP permits plain http to any host. It is otherwise permitted to
	// this machine only, because a SAS or token would travel in the clear.
	AllowHTTP bool
}

// defaultCredential is shared by all accounts of the process: each
// DefaultAzureCredential has a token cache of its own, and a hundred accounts
// asking the machine's identity endpoint at once are throttled by it.
var defaultCredential = sync.OnceValues(func() (azcore.TokenCredential, error) {
	c, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return c, nil
})

// defaultTransport is shared so that all accounts draw on one pool of connections.
var defaultTransport = sync.OnceValue(func() *http.Client {
	return NewTransport(defaultConcurrency)
})

// putSlots are the puts that the process-wide transport may have under way to each host, by its
// name. One that waits for a connection inside of net/http holds a document and a deep stack
// meanwhile, 20 KiB and more: of 2,500 queues on one host 8,000 did.
var putSlots sync.Map

func putSlotsOf(host string) *semaphore.Weighted {
	s, _ := putSlots.LoadOrStore(host, semaphore.NewWeighted(defaultConcurrency))
	return s.(*semaphore.Weighted)
}

// Open gives the account that o names. It makes no request, so a wrong key or
// an account that does not exist shows at the first call, as Auth or Missing.
// An error names the field that is wrong and how to put it right, and never
// contains a key, signature or token. The account may be used by many
// goroutines at once and needs no closing.
func Open(o Options) (storage.Account, error) {
	where, err := locate(o)
	if err != nil {
		return nil, fmt.Errorf("azure storage: %w", err)
	}
	a := &account{name: where.name, hide: where.secrets()}
	if err := CheckServiceVersion(o.ServiceVersion); err != nil {
		return nil, fmt.Errorf("azure storage: %w", wrong("serviceVersion", err.Error()))
	}
	transport := o.Transport
	if transport == nil {
		transport = defaultTransport()
	}
	if err := a.connect(o, where, wire{direct(transport)}); err != nil {
		return nil, fmt.Errorf("azure storage: %w", err)
	}
	if o.Transport == nil {
		a.puts = putSlotsOf(a.queueURL.Host)
	}
	return a, nil
}

// account is one storage account. It is immutable after Open.
type account struct {
	name   string
	bearer bool // by token: an unsent request failed for lack of one
	hide   redactor

	queues   *azqueue.ServiceClient
	queueURL *url.URL            // with the SAS, if that is the credential
	puts     *semaphore.Weighted // that may be under way; nil: with a transport of the caller's

	tables   *aztables.ServiceClient
	tableURL string // without SAS; batches name their rows by full address
	tableSAS string
	noTables error // why tables cannot be reached, nil if they can

	blobs   *blockblob.Client
	blobURL *url.URL // with the SAS, if that is the credential
	noBlobs error    // why blobs cannot be reached, nil if they can

	tableVersion string // x-ms-version of the requests in a batch
}

// connect makes the three service clients.
func (a *account) connect(o Options, where location, w wire) error {
	var auth policy.Policy
	if where.key == "" && where.sas == "" {
		cred := where.credential
		if cred == nil {
			var err error
			if cred, err = defaultCredential(); err != nil {
				return fmt.Errorf("endpoint: no SAS and no credential given, and no default "+
					"credential could be made: %w", err)
			}
		}
		// One policy for all services, so that they share a token. It stands in
		// for the SDK's constructors with a credential because that of aztables
		// refuses plain http even to an emulator.
		auth = runtime.NewBearerTokenPolicy(cred, []string{storageScope}, &policy.BearerTokenOptions{
			InsecureAllowCredentialWithHTTP: where.plainHTTP,
		})
		a.bearer = true
	}
	// The constructors append their signing policy to the options they are
	// given, so each gets its own.
	options := func(version string) azcore.ClientOptions {
		c := azcore.ClientOptions{
			Retry:           policy.RetryOptions{MaxRetries: -1},
			Telemetry:       policy.TelemetryOptions{ApplicationID: "queuepump"},
			Transport:       w,
			PerCallPolicies: []policy.Policy{carrier{}},
		}
		if version != "" {
			c.PerCallPolicies = append(c.PerCallPolicies, speaks(version))
		}
		if auth != nil {
			c.PerRetryPolicies = []policy.Policy{auth}
		}
		return c
	}
	queueOptions := &azqueue.ClientOptions{ClientOptions: options(o.ServiceVersion)}
	tableOptions := &aztables.ClientOptions{ClientOptions: options(o.ServiceVersion)}
	if err := a.connectBlobs(where, &blockblob.ClientOptions{
		ClientOptions: options(cmp.Or(o.ServiceVersion, sdkBlobVersion)),
		// A body would wait for an answer before it is sent (azsim/AZURE.md D25).
		ExpectContinueBehavior: blob.ExpectContinueOptions{Mode: blob.ExpectContinueModeOff},
	}); err != nil {
		return err
	}
	a.tableURL, a.noTables, a.tableVersion = where.table, where.noTable,
		cmp.Or(o.ServiceVersion, sdkTableVersion)
	a.tableSAS = where.tableSAS
	return a.connectClients(where, queueOptions, tableOptions)
}

// connectBlobs makes the one client that makes all requests to blobs.
func (a *account) connectBlobs(where location, o *blockblob.ClientOptions) (err error) {
	a.noBlobs = where.noBlob
	if where.blob == "" {
		return nil
	}
	if a.blobURL, err = url.Parse(withSAS(where.blob, where.blobSAS)); err != nil {
		return a.hide.error(err)
	}
	if where.key == "" {
		a.blobs, err = blockblob.NewClientWithNoCredential(where.blob, o)
	} else if key, wrong := blob.NewSharedKeyCredential(where.signer, where.key); wrong == nil {
		a.blobs, err = blockblob.NewClientWithSharedKeyCredential(where.blob, key, o)
	} else {
		return errKey
	}
	if err != nil {
		return a.hide.error(err)
	}
	return nil
}

func (a *account) connectClients(
	where location, queueOptions *azqueue.ClientOptions, tableOptions *aztables.ClientOptions,
) error {
	var err error
	if a.queueURL, err = url.Parse(withSAS(where.queue, where.sas)); err != nil {
		return a.hide.error(err)
	}
	if where.key != "" {
		// Both accept any base64; that was checked when the location was read.
		queueKey, err := azqueue.NewSharedKeyCredential(where.signer, where.key)
		if err != nil {
			return errKey
		}
		tableKey, err := aztables.NewSharedKeyCredential(where.signer, where.key)
		if err != nil {
			return errKey
		}
		if a.queues, err = azqueue.NewServiceClientWithSharedKeyCredential(where.queue, queueKey,
			queueOptions); err != nil {
			return a.hide.error(err)
		}
		if where.table != "" {
			if a.tables, err = aztables.NewServiceClientWithSharedKey(where.table, tableKey,
				tableOptions); err != nil {
				return a.hide.error(err)
			}
		}
		return nil
	}
	queueURL := withSAS(where.queue, where.sas)
	if a.queues, err = azqueue.NewServiceClientWithNoCredential(queueURL, queueOptions); err != nil {
		return a.hide.error(err)
	}
	if where.table != "" {
		// Not from the connection string: there aztables ignores TableEndpoint
		// as soon as a SAS is given (azsim/AZURE.md D16).
		tableURL := withSAS(where.table, where.tableSAS)
		if a.tables, err = aztables.NewServiceClientWithNoCredential(tableURL, tableOptions); err != nil {
			return a.hide.error(err)
		}
	}
	return nil
}

// storageScope is the audience of all services in every cloud.
const storageScope = "https://storage.azure.com/.default"

var errKey = errors.New("AccountKey is not base64; copy it again from the " +
	"portal, with its == at the end")

func withSAS(endpoint, sas string) string {
	if sas == "" {
		return endpoint
	}
	return endpoint + "?" + sas
}

func (a *account) Name() string { return a.name }

// Place is the address of the account's queue service without scheme and credentials, in lower
// case: two handles with the same place are of one account.
func (a *account) Place() string {
	return strings.ToLower(a.queueURL.Host + strings.TrimSuffix(a.queueURL.Path, "/"))
}

func (a *account) Queue(name string) storage.Queue {
	q := &queue{account: a, name: name}
	if validQueueName(name) {
		q.client = a.queues.NewQueueClient(name)
	}
	return q
}

func (a *account) Table(name string) storage.Table {
	t := &table{account: a, name: name}
	if a.tables != nil && validTableName(name) {
		t.client = a.tables.NewClient(name)
	}
	return t
}

func (a *account) Queues(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	for marker := ""; ; {
		x := &exchange{want: http.StatusOK, limit: listAnswer}
		err := a.do(ctx, "list", prefix+"*", x, func(ctx context.Context) error {
			o := &azqueue.ListQueuesOptions{}
			if prefix != "" {
				o.Prefix = &prefix
			}
			if marker != "" {
				o.Marker = &marker
			}
			_, err := a.queues.NewListQueuesPager(o).NextPage(ctx)
			return err
		})
		if err != nil {
			return nil, err
		}
		var page struct {
			XMLName    xml.Name `xml:"EnumerationResults"`
			Names      []string `xml:"Queues>Queue>Name"`
			NextMarker string   `xml:"NextMarker"`
		}
		if err := xml.Unmarshal(trimBOM(x.answer), &page); err != nil {
			return nil, a.unreadable("list", prefix+"*", x, err)
		}
		names = append(names, page.Names...)
		if len(names) > maxNames {
			return nil, a.unreadable("list", prefix+"*", x, fmt.Errorf("more than %d names", maxNames))
		}
		if page.NextMarker == "" {
			return names, nil
		}
		if page.NextMarker == marker {
			return nil, a.unreadable("list", prefix+"*", x, errors.New("the same page twice"))
		}
		marker = page.NextMarker
	}
}

// maxNames bounds a list, because a server may never end one. No workload has so many queues.
const maxNames = 100_000

// validKey reports whether key is what an account key looks like.
func validKey(key string) bool {
	b, err := base64.StdEncoding.DecodeString(key)
	return err == nil && len(b) > 0
}
