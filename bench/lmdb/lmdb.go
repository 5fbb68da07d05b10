//go:build lmdb && cgo

// Package lmdb lets LMDB take part in loading and reading, if the program
// is built with the tag lmdb. It needs LMDB's header and library (on Debian:
// liblmdb-dev). The inner loops are in C, so that LMDB is not charged for calls
// from Go.
package lmdb

/*
#cgo LDFLAGS: -llmdb
#include <lmdb.h>
#include <stdlib.h>

static int hf_open(const char *path, MDB_env **env) {
	int rc = mdb_env_create(env);
	if (rc == 0) rc = mdb_env_set_mapsize(*env, (size_t)8 << 30);
	if (rc == 0) rc = mdb_env_open(*env, path, MDB_NOSUBDIR | MDB_NOSYNC, 0600);
	return rc;
}

static int hf_put(MDB_env *env, char *keys, char *values, size_t ksize, size_t vsize, size_t n, unsigned flags) {
	MDB_txn *txn; MDB_dbi dbi;
	int rc = mdb_txn_begin(env, NULL, 0, &txn);
	if (rc) return rc;
	rc = mdb_dbi_open(txn, NULL, 0, &dbi);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		MDB_val k = {ksize, keys + i * ksize}, v = {vsize, values + i * vsize};
		rc = mdb_put(txn, dbi, &k, &v, flags);
	}
	if (rc) { mdb_txn_abort(txn); return rc; }
	return mdb_txn_commit(txn);
}

static int hf_gets(MDB_env *env, char *keys, size_t ksize, size_t n, int one, unsigned long *sum) {
	MDB_txn *txn = NULL; MDB_dbi dbi = 1;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		MDB_val k = {ksize, keys + i * ksize}, v;
		if (txn == NULL) {
			rc = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);
			if (rc) return rc;
			rc = mdb_dbi_open(txn, NULL, 0, &dbi);
			if (rc) break;
		}
		rc = mdb_get(txn, dbi, &k, &v);
		if (rc == 0) *sum += *(unsigned char *)v.mv_data;
		if (!one) { mdb_txn_abort(txn); txn = NULL; }
	}
	if (txn) mdb_txn_abort(txn);
	return rc;
}

static int hf_scan(MDB_env *env, unsigned long *n) {
	MDB_txn *txn; MDB_dbi dbi; MDB_cursor *c; MDB_val k, v;
	int rc = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);
	if (rc) return rc;
	rc = mdb_dbi_open(txn, NULL, 0, &dbi);
	if (rc == 0) rc = mdb_cursor_open(txn, dbi, &c);
	if (rc == 0) {
		*n = 0;
		while ((rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == 0) (*n)++;
		if (rc == MDB_NOTFOUND) rc = 0;
		mdb_cursor_close(c);
	}
	mdb_txn_abort(txn);
	return rc;
}
*/
import "C"

import (
	"bytes"
	"errors"
	"slices"
	"unsafe"

	"holdfast/bench/suite"
)

func init() { suite.Peers = append(suite.Peers, suite.Peer{Name: "LMDB, loop in C", Open: open}) }

type env struct {
	env  *C.MDB_env
	keys []byte // of the last call, one after the other
	of   *[]byte
}

func check(rc C.int) error {
	if rc == 0 {
		return nil
	}
	return errors.New("lmdb: " + C.GoString(C.mdb_strerror(rc)))
}

func open(path string, order []int, ordered bool, key, value func(i int) []byte) (suite.PeerStore, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	e := &env{}
	if err := check(C.hf_open(name, &e.env)); err != nil {
		return nil, err
	}
	flags := C.uint(0)
	if ordered {
		flags = C.MDB_APPEND
	}
	var keys, values []byte
	for part := range slices.Chunk(order, 10_000) {
		keys, values = keys[:0], values[:0]
		for _, i := range part {
			keys, values = append(keys, key(i)...), append(values, value(i)...)
		}
		count := len(part)
		rc := C.hf_put(e.env, (*C.char)(unsafe.Pointer(&keys[0])), (*C.char)(unsafe.Pointer(&values[0])),
			C.size_t(len(keys)/count), C.size_t(len(values)/count), C.size_t(count), flags)
		if err := check(rc); err != nil {
			return nil, err
		}
	}
	return e, check(C.mdb_env_sync(e.env, 1))
}

// Gets expects keys of one length. They are laid out once for each slice.
func (e *env) Gets(keys [][]byte, oneTx bool) error {
	if e.of != &keys[0] {
		e.keys, e.of = bytes.Join(keys, nil), &keys[0]
	}
	one, sum := C.int(0), C.ulong(0)
	if oneTx {
		one = 1
	}
	return check(C.hf_gets(e.env, (*C.char)(unsafe.Pointer(&e.keys[0])), C.size_t(len(keys[0])), C.size_t(len(keys)), one, &sum))
}

func (e *env) Scan() (int, error) {
	var n C.ulong
	err := check(C.hf_scan(e.env, &n))
	return int(n), err
}

func (e *env) Close() error {
	C.mdb_env_close(e.env)
	return nil
}
