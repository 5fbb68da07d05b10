//go:build lmdb && cgo

package stores

/*
#cgo LDFLAGS: -llmdb
#include <lmdb.h>
#include <stdlib.h>
#include <string.h>

enum { HF_PUT, HF_DELETE, HF_DROP };

typedef struct { size_t key, value; int op; } hf_op;

static int hf_open(const char *path, MDB_env **env, MDB_dbi *dbi, unsigned flags) {
	MDB_txn *txn;
	int rc = mdb_env_create(env);
	if (rc == 0) rc = mdb_env_set_mapsize(*env, (size_t)64 << 30);
	if (rc == 0) rc = mdb_env_open(*env, path, MDB_NOSUBDIR | MDB_NOTLS | flags, 0600);
	if (rc == 0) rc = mdb_txn_begin(*env, NULL, 0, &txn);
	if (rc) return rc;
	rc = mdb_dbi_open(txn, NULL, 0, dbi);
	if (rc) { mdb_txn_abort(txn); return rc; }
	return mdb_txn_commit(txn);
}

static int hf_drop(MDB_txn *txn, MDB_dbi dbi, MDB_val prefix) {
	MDB_cursor *c; MDB_val k = prefix, v;
	int rc = mdb_cursor_open(txn, dbi, &c);
	if (rc) return rc;
	rc = mdb_cursor_get(c, &k, &v, MDB_SET_RANGE);
	while (rc == 0 && k.mv_size >= prefix.mv_size && memcmp(k.mv_data, prefix.mv_data, prefix.mv_size) == 0) {
		rc = mdb_cursor_del(c, 0);
		if (rc == 0) rc = mdb_cursor_get(c, &k, &v, MDB_NEXT);
	}
	mdb_cursor_close(c);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

// hf_apply commits n operations, whose keys and values are in data, one after the other.
static int hf_apply(MDB_env *env, MDB_dbi dbi, const hf_op *ops, size_t n, char *data) {
	MDB_txn *txn;
	int rc = mdb_txn_begin(env, NULL, 0, &txn);
	if (rc) return rc;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		MDB_val k = {ops[i].key, data}, v = {ops[i].value, data + ops[i].key};
		data += ops[i].key + ops[i].value;
		switch (ops[i].op) {
		case HF_PUT: rc = mdb_put(txn, dbi, &k, &v, 0); break;
		case HF_DELETE: rc = mdb_del(txn, dbi, &k, NULL); if (rc == MDB_NOTFOUND) rc = 0; break;
		default: rc = hf_drop(txn, dbi, k);
		}
	}
	if (rc) { mdb_txn_abort(txn); return rc; }
	return mdb_txn_commit(txn);
}

// A goroutine may change its thread between calls: MDB_NOTLS, so that readers do not belong to threads.
// hf_get renews the reader that an earlier call has left, as LMDB's documentation recommends.
static int hf_get(MDB_env *env, MDB_dbi dbi, MDB_txn **txn, char *key, size_t size, size_t *value) {
	MDB_val k = {size, key}, v;
	int rc = *txn ? mdb_txn_renew(*txn) : mdb_txn_begin(env, NULL, MDB_RDONLY, txn);
	if (rc) return rc;
	rc = mdb_get(*txn, dbi, &k, &v);
	if (rc == 0) *value = v.mv_size;
	mdb_txn_reset(*txn);
	return rc;
}

static int hf_begin(MDB_env *env, MDB_dbi dbi, MDB_txn **txn, MDB_cursor **c) {
	int rc = mdb_txn_begin(env, NULL, MDB_RDONLY, txn);
	if (rc) return rc;
	rc = mdb_cursor_open(*txn, dbi, c);
	if (rc) mdb_txn_abort(*txn);
	return rc;
}

static void hf_end(MDB_txn *txn, MDB_cursor *c) { mdb_cursor_close(c); mdb_txn_abort(txn); }

static int hf_next(MDB_cursor *c, void **key, size_t *ksize, void **value, size_t *vsize) {
	MDB_val k, v;
	int rc = mdb_cursor_get(c, &k, &v, MDB_NEXT);
	if (rc == 0) { *key = k.mv_data; *ksize = k.mv_size; *value = v.mv_data; *vsize = v.mv_size; }
	return rc;
}

static int hf_scan(MDB_env *env, MDB_dbi dbi, size_t *n) {
	MDB_txn *txn; MDB_cursor *c; MDB_val k, v;
	int rc = hf_begin(env, dbi, &txn, &c);
	if (rc) return rc;
	while ((rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == 0) (*n)++;
	hf_end(txn, c);
	return rc == MDB_NOTFOUND ? 0 : rc;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"holdfast/bench/age"
	"holdfast/bench/age/trace"
)

func init() {
	var major, minor, patch C.int
	C.mdb_version(&major, &minor, &patch)
	flats = append(flats, age.Peer{
		Name: "LMDB", Note: fmt.Sprintf("version %d.%d.%d, one call of C for a transaction, a map of 64 GiB", major, minor, patch), Open: openLMDB,
	})
}

type lmdbStore struct {
	env    *C.MDB_env
	dbi    C.MDB_dbi
	reader *C.MDB_txn
	ops    []C.hf_op // of the last transaction
	data   []byte
}

func lmdbError(rc C.int) error {
	switch rc {
	case 0:
		return nil
	case C.MDB_NOTFOUND:
		return age.ErrNoKey
	}
	return errors.New("lmdb: " + C.GoString(C.mdb_strerror(rc)))
}

func openLMDB(dir string, noSync bool) (age.Store, error) {
	name, flags := C.CString(file(dir)), C.uint(0)
	defer C.free(unsafe.Pointer(name))
	if noSync {
		flags = C.MDB_NOSYNC
	}
	s := &lmdbStore{}
	if err := lmdbError(C.hf_open(name, &s.env, &s.dbi, flags)); err != nil {
		C.mdb_env_close(s.env)
		return nil, err
	}
	return s, nil
}

func (s *lmdbStore) Apply(tx []age.Op) error {
	s.ops, s.data = s.ops[:0], s.data[:0]
	longest := int(C.mdb_env_get_maxkeysize(s.env))
	for i := range tx {
		op := &tx[i]
		one := C.hf_op{key: C.size_t(len(op.Flat)), value: C.size_t(len(op.Value))}
		switch op.Do {
		case trace.Put:
			one.op = C.HF_PUT
		case trace.Delete:
			one.op = C.HF_DELETE
		case trace.Drop:
			one.op = C.HF_DROP
		case trace.Create:
			continue
		default:
			return fmt.Errorf("there is no operation %q", op.Do)
		}
		if len(op.Flat) > longest {
			return fmt.Errorf("lmdb: the key of %d bytes is longer than the %d that its library was built for", len(op.Flat), longest)
		}
		s.ops = append(s.ops, one)
		s.data = append(append(s.data, op.Flat...), op.Value...)
	}
	if len(s.ops) == 0 {
		return nil
	}
	return lmdbError(C.hf_apply(s.env, s.dbi, &s.ops[0], C.size_t(len(s.ops)), (*C.char)(unsafe.Pointer(&s.data[0]))))
}

func (s *lmdbStore) Get(name *age.Op) (int, error) {
	var size C.size_t
	rc := C.hf_get(s.env, s.dbi, &s.reader, (*C.char)(unsafe.Pointer(&name.Flat[0])), C.size_t(len(name.Flat)), &size)
	return int(size), lmdbError(rc)
}

func (s *lmdbStore) Scan() (int, error) {
	var n C.size_t
	rc := C.hf_scan(s.env, s.dbi, &n)
	return int(n), lmdbError(rc)
}

func (s *lmdbStore) Walk(fn func(flat, value []byte) error) error {
	var txn *C.MDB_txn
	var cursor *C.MDB_cursor
	if err := lmdbError(C.hf_begin(s.env, s.dbi, &txn, &cursor)); err != nil {
		return err
	}
	defer func() { C.hf_end(txn, cursor) }()
	for {
		var key, value unsafe.Pointer
		var keySize, valueSize C.size_t
		rc := C.hf_next(cursor, &key, &keySize, &value, &valueSize)
		if rc == C.MDB_NOTFOUND {
			return nil
		}
		if err := lmdbError(rc); err != nil {
			return err
		}
		if err := fn(unsafe.Slice((*byte)(key), keySize), unsafe.Slice((*byte)(value), valueSize)); err != nil {
			return err
		}
	}
}

func (s *lmdbStore) Sync() error { return lmdbError(C.mdb_env_sync(s.env, 1)) }

func (s *lmdbStore) Close() error {
	if s.reader != nil {
		C.mdb_txn_abort(s.reader)
	}
	C.mdb_env_close(s.env)
	return nil
}
