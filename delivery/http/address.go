package webhook

import "net/netip"

// notPublic are networks that lead somewhere private, nowhere, or to an address hidden inside another, and for which netip has no word.
// Source: the IANA special-purpose address registries. The whole of NAT64, 6to4 and Teredo is refused: what they wrap may be private.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("::ffff:0:0:0/96"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("3fff::/20"), netip.MustParsePrefix("5f00::/16"),
	netip.MustParsePrefix("fec0::/10"),
}

// permitted is the rule of DESIGN 12 for the address that is really dialled.
func (o *Options) permitted(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	switch {
	case a.IsUnspecified() || a.IsMulticast() || !a.IsValid():
		return false // never a destination, whatever is allowed
	case o.AllowPrivate:
		return true
	case a.IsLoopback():
		return o.AllowLoopback
	case !a.IsGlobalUnicast() || a.IsPrivate():
		return false
	}
	for _, p := range notPublic {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
