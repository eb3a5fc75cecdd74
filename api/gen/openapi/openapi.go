// Package openapi holds the OpenAPI 2 document of the public REST API.
//
// What it is. The document that buf generates from api/proto/sealane/v1 (sealane.swagger.json), embedded in the binary. This file is the
// only hand-written one under api/gen; buf.gen.yaml does not clean the directory.
//
// What it may not do. It does not change the document. The endpoint that takes a raw body, POST /v1/destinations/{name}/messages, is no
// RPC and so is not in it; the server adds it to what it serves.
//
// Invariant. Its paths are exactly the HTTP rules of the protos (api_test).
//
// Where to start. Document is all there is.
package openapi

import (
	"bytes"
	_ "embed"
)

//go:embed sealane.swagger.json
var document []byte

// Document returns a copy of the OpenAPI 2 document, as JSON.
func Document() []byte { return bytes.Clone(document) }
