// The usual flows of node-pg against a server. Takes the port.
const { Pool } = require('pg');
const assert = require('assert');
(async () => {
  const pool = new Pool({ host: '127.0.0.1', port: +process.argv[2], user: 'tester', database: 'default', max: 3, statement_timeout: 5000 });
  await pool.query('CREATE TABLE nd (time TIMESTAMPTZ NOT NULL, host TAG, level DOUBLE PRECISION, n BIGINT, ok BOOLEAN)');
  const at = new Date('2024-07-10T12:00:00.123Z');
  let r = await pool.query('INSERT INTO nd (time, host, level, n, ok) VALUES ($1, $2, $3, $4, $5) RETURNING n', [at, 'a', 1.5, 7, true]);
  assert.strictEqual(r.rowCount, 1); assert.strictEqual(r.rows[0].n, '7');
  r = await pool.query({ name: 'q', text: 'SELECT * FROM nd WHERE time = $1 AND host = ANY($2)', values: [at, ['a', 'b']] });
  assert.deepStrictEqual(r.rows, [{ time: at, host: 'a', level: 1.5, n: '7', ok: true }]);
  const c = await pool.connect();
  await c.query('BEGIN'); await c.query('INSERT INTO nd (time, host, level) VALUES ($1, $2, $3)', [at, 'z', 1]); await c.query('ROLLBACK');
  r = await c.query('SELECT count(*)::int AS n FROM nd'); assert.strictEqual(+r.rows[0].n, 1);
  await assert.rejects(c.query('SELECT nothing FROM nd'), { code: '42703' });
  c.release();
  r = await pool.query('DELETE FROM nd'); assert.strictEqual(r.rowCount, 1);
  await pool.end(); console.log('well');
})().catch(e => { console.error(e); process.exit(1); });
