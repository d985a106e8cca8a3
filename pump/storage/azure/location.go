package azure

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// location is where an account is and how to get in, in one form for the several ways in which
// [Options] may say so.
type location struct {
	name   string // in logs and metrics
	signer string // the name that a key signs for

	// service addresses, without query and without slash at the end
	queue, table, blob string
	noTable, noBlob    error // why table or blob is empty
	key                string
	// without question mark
	sas, tableSAS, blobSAS string
	credential             azcore.TokenCredential
	plainHTTP              bool
}

// secrets are the texts that must not leave in an error. A SAS is hidden by its
// signature, as it is, as it was written and as a library may write it.
func (l location) secrets() redactor {
	var r redactor
	if l.key != "" {
		r = append(r, l.key)
	}
	for _, sas := range []string{l.sas, l.tableSAS, l.blobSAS} {
		for pair := range strings.SplitSeq(sas, "&") {
			written, found := strings.CutPrefix(pair, "sig=")
			if !found || written == "" {
				continue
			}
			r = append(r, written)
			if sig, err := url.QueryUnescape(written); err == nil {
				r = append(r, sig, url.QueryEscape(sig), url.PathEscape(sig))
			}
		}
	}
	return r
}

// OptionError says which of the [Options] is wrong, by its name in pump.yaml, and the fix.
type OptionError struct{ Field, Problem, Fix string }

func (e *OptionError) Error() string { return e.Field + ": " + e.Problem + "; " + e.Fix }

// wrong makes an OptionError from a text: what is wrong and, behind a semicolon, the fix.
func wrong(field, text string) error {
	problem, fix, _ := strings.Cut(text, "; ")
	return &OptionError{field, problem, fix}
}

// locate reads o. Its errors are OptionErrors.
func locate(o Options) (location, error) {
	var l location
	var err error
	field := "connectionString"
	switch {
	case o.ConnectionString != "" && o.Endpoint != "":
		return l, wrong("endpoint", "stands beside connectionString; keep one of the two")
	case o.ConnectionString != "":
		if l, err = fromConnectionString(
			o.ConnectionString, o.TableEndpoint, o.BlobEndpoint,
		); err != nil {
			return l, wrong(field, err.Error())
		}
	case o.Endpoint != "":
		field = "endpoint"
		if l, err = fromEndpoints(o.Endpoint, o.TableEndpoint, o.BlobEndpoint); err != nil {
			return l, err
		}
		l.credential = o.Credential
	default:
		return l, wrong(field, "is not given, nor is endpoint; give one of the two")
	}
	if o.Name != "" {
		l.name = o.Name
		if !validName(l.name) {
			return l, wrong("name", "is not one that can stand in logs and rows; use up to 64 letters, "+
				"digits, dots, dashes and underscores")
		}
	}
	if !validName(l.name) {
		return l, wrong(field, "the end of the address is not the name of an account; is a ? missing "+
			"before the shared access signature?")
	}
	for _, address := range []string{l.queue, l.table, l.blob} {
		u, err := url.Parse(address)
		if err != nil || address == "" {
			continue // parsed before; why one is empty is noTable's matter, or noBlob's
		}
		if u.Scheme == "http" {
			if !o.AllowHTTP && !loopback(u.Hostname()) {
				return l, wrong(field, "plain http to "+u.Host+" would show the credential to the network; "+
					"use https, or allow http on purpose")
			}
			l.plainHTTP = true
		}
	}
	return l, nil
}

// validName is what an account may be called in logs, metrics and rows: it must not look like a
// key, a signature or a connection string.
func validName(s string) bool {
	return within(s, 1, 64, func(c byte) bool {
		return letter(c) || digit(c) || strings.IndexByte(".-_:[]", c) >= 0
	})
}

func loopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// fromEndpoints reads service addresses, each with a SAS or without.
func fromEndpoints(queue, table, blob string) (location, error) {
	var l location
	q, sas, err := splitEndpoint(queue)
	if err != nil {
		return l, wrong("endpoint", err.Error())
	}
	l.queue, l.sas = q.String(), sas
	l.name = accountName(q)
	l.signer = l.name
	for _, other := range []struct {
		service, given string
		address, sas   *string
		missing        *error
	}{
		{"table", table, &l.table, &l.tableSAS, &l.noTable},
		{"blob", blob, &l.blob, &l.blobSAS, &l.noBlob},
	} {
		*other.sas = sas
		if other.given == "" {
			*other.address, *other.missing = beside(q, other.service)
			continue
		}
		u, own, err := splitEndpoint(other.given)
		if err != nil {
			return l, wrong(other.service+"Endpoint", err.Error())
		}
		*other.address, *other.sas = u.String(), cmp.Or(own, sas)
	}
	return l, nil
}

// splitEndpoint reads one service address. Its errors do not quote it: a SAS
// may stand anywhere in a mistyped one.
func splitEndpoint(s string) (*url.URL, string, error) {
	fail := func(problem string) (*url.URL, string, error) {
		return nil, "", errors.New(problem + "; it should look like https://NAME.queue.core.windows.net")
	}
	if err := unquoted(s); err != nil {
		return nil, "", err
	}
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil {
		return fail("is not an address")
	}
	inHost := func(c byte) bool {
		return letter(c) || digit(c) || strings.IndexByte(".-_:[]%", c) >= 0
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return fail("the address must begin with https://")
	case u.Host == "":
		return fail("the address has no host")
	case u.User != nil:
		return fail("the address must not have a user or password in it")
	case !within(u.Host, 1, 300, inHost) || strings.Contains(u.Host, ".."):
		return fail("the address has no proper host")
	case u.Fragment != "":
		return fail("the address must not have a # in it")
	case strings.Contains(u.Host, ".queue.") && validName(strings.Trim(u.Path, "/")):
		return nil, "", errors.New("is the address of one queue, not of an account; end it behind " +
			u.Host + ", with a shared access signature of the account")
	}
	sas := u.RawQuery
	if sas != "" {
		if err := checkSAS(sas); err != nil {
			return nil, "", err
		}
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}, sas, nil
}

// unquoted refuses quotes, which shells take away, and environment files and secrets keep.
func unquoted(s string) error {
	if strings.ContainsAny(s, "\"'`“”") {
		return errors.New("has a quote in it; take the quotes away, also in the variable or the file " +
			"that it comes from")
	}
	return nil
}

// checkSAS refuses what no request can be made with.
func checkSAS(sas string) error {
	q, err := url.ParseQuery(sas)
	if err != nil || strings.ContainsAny(sas, "?# \t\r\n") {
		return errors.New("the shared access signature is damaged; copy it again, from sv= " +
			"(or se=) to the end of sig=")
	}
	if q.Get("sig") == "" {
		return errors.New("the shared access signature has no sig= part; copy it again, whole")
	}
	lacks := func(field, needed string) bool {
		return strings.ContainsFunc(needed, func(r rune) bool {
			return !strings.ContainsRune(q.Get(field), r)
		})
	}
	problem := ""
	switch begins, ok := timeOf(q.Get("st")); {
	case !q.Has("srt") && (q.Has("sp") || q.Has("si")):
		problem = "is of one queue or table, not of an account"
	case q.Has("srt") && lacks("ss", "q"):
		problem = "is not for queues (ss=q)"
	case q.Has("srt") && lacks("srt", "co"):
		problem = "is not for queues and messages (srt=co)"
	case q.Has("srt") && lacks("sp", "ra"):
		problem = "lacks rights (at the least sp=ra)"
	case ok && time.Until(begins) > farAhead:
		return errors.New("the shared access signature begins only at " +
			begins.Format(time.RFC3339) + "; make one that has begun, or set this machine's clock")
	default:
		return nil
	}
	return errors.New("the shared access signature " + problem + "; make one of the account, with " +
		"services qt, resource types sco and permissions rwdlacup")
}

// farAhead is when a signature that is to begin is a mistake, and not one that a clock sees early.
const farAhead = 24 * time.Hour

// accountName is the name an address suggests: the last element of the path of
// a path-style address, else the first label of the host.
func accountName(u *url.URL) string {
	if i := strings.LastIndexByte(u.Path, '/'); i >= 0 && i+1 < len(u.Path) {
		return u.Path[i+1:]
	}
	if net.ParseIP(u.Hostname()) != nil {
		return u.Host
	}
	name, _, _ := strings.Cut(u.Hostname(), ".")
	return name
}

// beside finds the table or blob service that goes with a queue service.
func beside(queue *url.URL, service string) (string, error) {
	if !strings.Contains(queue.Host, ".queue.") {
		return "", fmt.Errorf("the address of the %s service cannot be told from that of the queue "+
			"service; give %[1]sEndpoint (%sEndpoint in a connection string)", service,
			strings.ToUpper(service[:1])+service[1:])
	}
	t := *queue
	t.Host = strings.Replace(t.Host, ".queue.", "."+service+".", 1)
	return t.String(), nil
}

// The development account of the emulators, published at
// learn.microsoft.com/azure/storage/common/storage-connect-azurite. No secret.
const (
	developmentName = "devstoreaccount1"
	developmentKey  = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6" +
		"IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// fromConnectionString reads a connection string the way a person writes it:
// names in any case, spaces and stray semicolons tolerated. The SDKs refuse
// those, and each reads a different subset of the fields (azsim/AZURE.md D16).
// Errors quote names of known fields only, because of a damaged string any
// other part may be the secret.
func fromConnectionString(s, tableEndpoint, blobEndpoint string) (location, error) {
	if err := unquoted(s); err != nil {
		return location{}, err
	}
	fields, err := connectionFields(s)
	if err != nil {
		return location{}, err
	}
	if strings.EqualFold(fields["usedevelopmentstorage"], "true") {
		fields = map[string]string{
			"accountname": developmentName, "accountkey": developmentKey,
			"queueendpoint": "http://127.0.0.1:10001/" + developmentName,
			"tableendpoint": "http://127.0.0.1:10002/" + developmentName,
			"blobendpoint":  "http://127.0.0.1:10000/" + developmentName,
		}
	}
	name, key := fields["accountname"], fields["accountkey"]
	sas := strings.TrimPrefix(fields["sharedaccesssignature"], "?")
	switch {
	case key == "" && sas == "":
		return location{},
			errors.New("it has neither AccountKey= nor SharedAccessSignature=; copy it again, whole")
	case key != "" && !validKey(key):
		return location{}, errKey
	case key == "":
		if err := checkSAS(sas); err != nil {
			return location{}, fmt.Errorf("SharedAccessSignature: %w", err)
		}
	}
	protocol := cmp.Or(fields["defaultendpointsprotocol"], "https")
	suffix := cmp.Or(fields["endpointsuffix"], "core.windows.net")
	queue, table := fields["queueendpoint"], cmp.Or(tableEndpoint, fields["tableendpoint"])
	blob := cmp.Or(blobEndpoint, fields["blobendpoint"])
	if strings.HasPrefix(suffix, ".") {
		return location{}, errors.New("EndpointSuffix begins with a dot; take it away, as in " +
			"EndpointSuffix=core.windows.net")
	}
	if name == "" && queue == "" {
		return location{},
			errors.New("it has neither AccountName= nor QueueEndpoint=; copy it again, whole")
	}
	if name != "" && !validAccountName(name) {
		return location{}, errors.New("AccountName must be letters, digits and dashes; copy it again")
	}
	queue = cmp.Or(queue, protocol+"://"+name+".queue."+suffix)
	if table == "" && name != "" && fields["queueendpoint"] == "" {
		table = protocol + "://" + name + ".table." + suffix
	}
	if blob == "" && name != "" && fields["queueendpoint"] == "" {
		blob = protocol + "://" + name + ".blob." + suffix
	}
	l, err := fromEndpoints(queue, table, blob)
	if err != nil {
		return l, err
	}
	if name != "" {
		l.name, l.signer = name, name
	}
	if key != "" {
		l.key, l.sas, l.tableSAS, l.blobSAS = key, "", "", ""
	} else {
		l.sas, l.tableSAS, l.blobSAS = cmp.Or(l.sas, sas), cmp.Or(l.tableSAS, sas), cmp.Or(l.blobSAS, sas)
	}
	return l, nil
}

// connectionFields splits the string; names come out in lower case.
func connectionFields(s string) (map[string]string, error) {
	fields := map[string]string{}
	for i, part := range strings.Split(s, ";") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("part %d is not NAME=VALUE; the parts are separated by semicolons", i+1)
		}
		fields[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	return fields, nil
}

// validAccountName is wider than Azure's own rule (3 to 24 lower-case letters
// and digits), which emulators do not keep, and narrow enough to stand in a host name.
func validAccountName(s string) bool {
	return within(s, 1, 63, func(c byte) bool { return letter(c) || digit(c) || c == '-' })
}

func within(s string, least, most int, ok func(byte) bool) bool {
	if len(s) < least || len(s) > most {
		return false
	}
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func digit(c byte) bool  { return '0' <= c && c <= '9' }
