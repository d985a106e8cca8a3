package configfile

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// config is the whole file.
func (d *decoder) config() group {
	c, budget, prices := &d.Config, &d.Config.Budget, &d.Config.Prices
	const (
		rate    = "use 1 to 1e9 messages a second, or leave it out for the published limit"
		getCost = "use messages (each message counts) or request (a get counts as one)"
		price   = "use what 10,000 requests cost, up to 10000, or leave it out for the published price"
	)
	return group{[]field{
		{name: "workload", to: &c.Workload},
		{name: "accounts", to: item(func(path string, n ast.Node) {
			c.Accounts = append(c.Accounts, pump.Account{})
			d.group(path, n, d.account(&c.Accounts[len(c.Accounts)-1]))
		}), fix: "connectionString: ..."},
		{name: "control", to: &c.Control},
		// 0 is "not set" in [pump.Config].
		{
			name: "segments", to: &c.Segments, zero: pump.Shared,
			fix: "use a multiple of 64 up to 16384, 0 for a shared workload, or leave it out",
		},
		{name: "delivery", to: (*string)(&c.Delivery)},
		{name: "foreign", to: group{fields: []field{
			{name: "encoding", to: &c.ForeignEncoding},
			{name: "key", to: &c.ForeignKey},
			{name: "split", to: text(func(s string) bool {
				c.ForeignSplit = s == "true"
				return s == "true" || s == "false"
			}), problem: "is neither true nor false", fix: "use true to make tasks of arrays' elements"},
		}}},
		{name: "retention", to: &c.Retention},
		{name: "budget", to: group{fields: []field{
			{name: "account", to: &budget.Account, fix: rate},
			{name: "queue", to: &budget.Queue, fix: rate},
			{
				name: "costPerDay", to: &budget.CostPerDay,
				fix: "use what a day may cost, or leave it out for no cap",
			},
			{name: "getCost", to: text(func(s string) bool {
				budget.GetCostsMessages = new(s == "messages")
				return s == "messages" || s == "request"
			}), problem: "is not a way to count a get", fix: getCost},
		}}},
		{name: "perKey", to: d.perKey()},
		{name: "prices", to: group{[]field{
			{name: "currency", to: &prices.Currency},
			{name: "queue", to: &prices.Queue, fix: price},
			{name: "table", to: &prices.Table, fix: price},
			{name: "source", to: &prices.Source},
			{name: "date", to: &prices.Date},
		}, func(path string, _ bool) {
			if problem, fix, mixed := prices.Mixed(); mixed {
				d.fail(path+".currency", problem, fix)
			}
		}}},
		{name: "admin", to: d.admin()},
		{name: "page", to: d.page()},
		{
			name: "scheduledEvents", to: text(d.events), problem: "is not an address of this machine",
			fix: "use off, azure, or an address such as http://127.0.0.1:8080",
		},
	}, func(string, bool) {
		for _, f := range [][2]string{
			{"workload", "add `workload: NAME`, 3 to 40 of a-z, 0-9 and single dashes"},
			{"accounts", "add `accounts:` and under it `  - connectionString: ...` " +
				"for each storage account"},
		} {
			if d.lines[f[0]] == 0 {
				d.fail(f[0], "is missing", f[1])
			}
		}
	}}
}

func (d *decoder) perKey() group {
	const rate = "use 1/m to 1000000/s, as in 10/s, or leave it out for no limit"
	return group{fields: []field{
		{
			name: "concurrent", to: &d.PerKey.Concurrent,
			fix: "use 1 to 100000, or leave it out for no limit",
		},
		{
			name: "rate", to: text(func(s string) bool { return d.PerKey.SetRate(s) == nil }),
			problem: "is not a rate", fix: rate,
		},
	}}
}

func (d *decoder) admin() group {
	return group{fields: []field{
		{name: "listen", to: text(func(s string) bool {
			d.Admin.Listen = s
			return s == "off" || isAddress(s)
		}), problem: "is not an address", fix: "write host:port, as in 127.0.0.1:9090, or off"},
		{name: "advertise", to: text(func(s string) bool {
			d.Admin.Advertise = s
			return isAddress(s)
		}), problem: "is not an address", fix: "write host:port, as in worker1.internal:9090"},
		{name: "sample", to: text(func(s string) bool {
			every, err := time.ParseDuration(s)
			if d.Admin.Sample = every; s == "off" {
				d.Admin.Sample = -1
			}
			return s == "off" || err == nil && every >= time.Second
		}), problem: "is not a length of time from 1s on", fix: "write 15s, 1m or off"},
	}}
}

func (d *decoder) page() group {
	return group{fields: []field{
		// The file is not read: other commands do not need the token, and a new token counts at once.
		{name: "tokenFile", to: text(func(s string) bool {
			d.Page.TokenFile = besideCredentials(s)
			return true
		})},
		{name: "onAdminPort", to: text(func(s string) bool {
			d.Page.ByCommand = s == "false"
			return s == "true" || s == "false"
		}), problem: "is neither true nor false", fix: "write true or false without quotes"},
	}}
}

func (d *decoder) account(a *pump.Account) group {
	const version = "write a date from 2017-07-29 on, such as 2019-07-07, or leave it out " +
		"for the newest"
	return group{[]field{
		{name: "connectionString", to: &a.ConnectionString},
		{name: "endpoint", to: &a.Endpoint},
		{name: "tableEndpoint", to: &a.TableEndpoint},
		{name: "blobEndpoint", to: &a.BlobEndpoint},
		{name: "name", to: &a.Name},
		{
			name: "queues", to: &a.Queues,
			fix: fmt.Sprintf("use 1 to 100, or leave it out for %d", pump.DefaultQueues),
		},
		{name: "foreignQueues", to: item(func(path string, n ast.Node) {
			a.Foreign = append(a.Foreign, "")
			d.scalar(path, n, field{to: &a.Foreign[len(a.Foreign)-1]})
		}), fix: "orders"},
		{name: "weight", to: &a.Weight, fix: "use 0.01 to 100, or leave it out for 1"},
		{name: "serviceVersion", to: text(func(s string) bool {
			a.ServiceVersion = s
			return azure.CheckServiceVersion(s) == nil
		}), problem: "is not a version that can be used", fix: version},
		{name: "allowHTTP", to: &a.AllowHTTP},
		{name: "identity", to: d.identity(&a.Credential)},
	}, func(path string, _ bool) {
		has := func(name string) bool { return d.lines[path+"."+name] > 0 }
		switch {
		case has("connectionString") && has("endpoint"):
			d.fail(path+".endpoint", "stands beside connectionString, which names the endpoint already",
				"keep one of the two")
		case has("connectionString") && has("tableEndpoint"):
			d.fail(path+".tableEndpoint", "belongs to endpoint, not to connectionString",
				"write TableEndpoint= into the connection string")
		case has("connectionString") && has("blobEndpoint"):
			d.fail(path+".blobEndpoint", "belongs to endpoint, not to connectionString",
				"write BlobEndpoint= into the connection string")
		case a.Credential != nil && (has("connectionString") || strings.Contains(a.Endpoint, "?")):
			d.fail(path+".identity", "stands beside a key or a shared access signature",
				"keep one of the two")
		case !has("connectionString") && !has("endpoint"):
			d.fail(path, "says nothing about where the account is",
				"add `connectionString: ...`, or `endpoint: https://NAME.queue.core.windows.net`")
		}
	}}
}

// isAddress checks a host:port. Its name need not be known here, and its port need not be free.
func isAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	return err == nil && port != ""
}

// events takes the address at which to ask for scheduled events. It must be on this machine,
// because its answers can end the process.
func (d *decoder) events(s string) bool {
	switch s {
	case "off":
		return true
	case "azure":
		s = "http://169.254.169.254" // Azure's address for machines
	}
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	d.Events = s
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && (ip.IsLoopback() || ip.IsLinkLocalUnicast()) && u.Scheme == "http" &&
		u.User == nil && u.RawQuery == "" && (u.Path == "" || u.Path == "/")
}
