package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
)

// authority signs certificates that the test makes.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue makes a certificate for one name, or for 127.0.0.1 if that is it.
func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) mutual(certificates ...tls.Certificate) credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: certificates, RootCAs: a.pool, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})
}

// pair starts two nodes on loopback.
func pair(t testing.TB, first, second credentials.TransportCredentials) (n1, n2 *Network) {
	t.Helper()
	addresses := map[string]string{}
	var nodes []*Network
	for i, c := range []credentials.TransportCredentials{first, second} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		node := named("n%d", i+1)
		addresses[node] = l.Addr().String()
		n, err := New(Options{
			Node: node, Replica: rid(node), Boot: uint64(i + 1), Listener: l, Credentials: c, Logger: quiet(),
			Resolve: func(node string) (string, bool) { return addresses[node], true },
		})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
		t.Cleanup(func() {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return nodes[0], nodes[1]
}

func TestMutualTLS(t *testing.T) {
	a := newAuthority(t)
	n1, n2 := pair(t, a.mutual(a.issue(t, "127.0.0.1")), a.mutual(a.issue(t, "127.0.0.1")))
	answer(n1.Transport(1), nil)
	answer(n2.Transport(1), nil)
	mustSend(t, n1.group(1), "n2", entries("n1", 1, 100))
	mustSend(t, n2.group(1), "n1", heartbeat("n2", 1))
}

// Without a certificate, with one of another authority, for another host, or without TLS at all, nothing gets through.
func TestTLSRefusals(t *testing.T) {
	a, foreign := newAuthority(t), newAuthority(t)
	good := a.issue(t, "127.0.0.1")
	for name, c := range map[string]struct {
		client, server credentials.TransportCredentials
	}{
		"client without a certificate":    {a.mutual(), a.mutual(good)},
		"client of another authority":     {credentials.NewTLS(&tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{foreign.issue(t, "127.0.0.1")}}), a.mutual(good)},
		"client without TLS":              {nil, a.mutual(good)},
		"server without TLS":              {a.mutual(good), nil},
		"server of another authority":     {a.mutual(good), foreign.mutual(foreign.issue(t, "127.0.0.1"))},
		"server's certificate, elsewhere": {a.mutual(good), a.mutual(a.issue(t, "example.test"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n1, n2 := pair(t, c.client, c.server)
			there := answer(n2.Transport(1), nil)
			_, err := send(n1.Transport(1), "n2", entries("n1", 1, 3))
			wantErr(t, err, ErrUnreachable, "an append")
			if len(there.seen()) != 0 || statusOf(t, n1, "n2").Reachable {
				t.Fatal("something got through")
			}
		})
	}
}
