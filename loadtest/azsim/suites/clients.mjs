// Drives the JavaScript clients of queues and tables, as their users do, on the account that
// CONNECTION names: what npm has of them holds no tests.
import { deepEqual as equal, rejects } from 'node:assert/strict'
import test from 'node:test'
import * as q from '@azure/storage-queue'
import * as t from '@azure/data-tables'

const connection = process.env.CONNECTION
const queues = q.QueueServiceClient.fromConnectionString(connection)
const tables = t.TableServiceClient.fromConnectionString(connection)
const later = new Date(Date.now() + 3600e3)
const token = { getToken: async () => ({ token: 'any', expiresOnTimestamp: +later }) }
const refused = (promise, status, code) => rejects(promise, e =>
  e.statusCode === status && (e.code ?? e.details?.odataError?.code) === code)
const all = async pages => { const l = []; for await (const item of pages) l.push(item); return l }

const queueTest = (name, run) => test(`storage-queue ${name}`, async () => {
  const queue = queues.getQueueClient(name)
  await queue.create()
  await run(queue, async () => (await queue.receiveMessages()).receivedMessageItems)
})
queueTest('queues', async queue => {
  await queue.setMetadata({ key: 'value' })
  await refused(queue.create(), 409, 'QueueAlreadyExists')
  for (const end of 'abc') await queues.createQueue(queue.name + end)
  const pages = await all(queues.listQueues({ prefix: queue.name, includeMetadata: true })
    .byPage({ maxPageSize: 3 }))
  equal(pages.map(p => p.queueItems.length), [3, 1])
  equal(pages[0].queueItems[0].metadata, { key: 'value' })
  await queue.delete()
  equal(await queue.exists(), false)
})
queueTest('messages', async (queue, receive) => {
  const text = "it's æ <&> 漢字 🎉"
  const { messageId } = await queue.sendMessage(text, { messageTimeToLive: -1 })
  equal((await queue.peekMessages()).peekedMessageItems[0].messageText, text)
  const [got] = await receive()
  equal([got.messageId, got.messageText, got.dequeueCount], [messageId, text, 1])
  await queue.updateMessage(messageId, got.popReceipt, 'changed', 0)
  await refused(queue.deleteMessage(messageId, got.popReceipt), 404, 'MessageNotFound')
  equal((await receive())[0].messageText, 'changed')
  await refused(queue.sendMessage('x'.repeat(65537)), 413, 'RequestBodyTooLarge')
  await queue.clearMessages()
})
queueTest('many', async queue => { // run.sh looks at the memory
  const put = async () => { for (let i = 0; i < 2000; i++) await queue.sendMessage('x'.repeat(100)) }
  await Promise.all(Array.from({ length: 50 }, put))
  equal((await queue.getProperties()).approximateMessagesCount, 100_000)
})
queueTest('signatures', async queue => {
  const accessPolicy = { startsOn: new Date(0), expiresOn: later, permissions: 'a' }
  await queue.setAccessPolicy([{ id: 'one', accessPolicy }])
  equal((await queue.getAccessPolicy()).signedIdentifiers, [{ id: 'one', accessPolicy }])
  const permissions = q.QueueSASPermissions.parse('a')
  for (const sas of [{ identifier: 'one' }, { expiresOn: later, permissions, protocol: 'https' }]) {
    const shared = new q.QueueClient(queue.generateSasUrl(sas))
    await shared.sendMessage('x')
    await refused(shared.peekMessages(), 403, 'AuthorizationPermissionMismatch')
  }
})
queueTest('tokens', async queue => {
  await new q.QueueClient(queue.url, token).sendMessage('x')
  await new t.TableServiceClient(tables.url, token).setProperties({ cors: [] })
})

const tableTest = (name, run) => test(`data-tables ${name}`, async () => {
  const table = t.TableClient.fromConnectionString(connection, name)
  await table.createTable()
  await run(table)
})
const row = (rowKey, more) => ({ partitionKey: "p'1", rowKey, ...more })
tableTest('Entities', async table => {
  const values = { text: "it's æ🎉", whole: 5, real: 1.5, yes: true, big: 9007199254740993n,
    at: new Date(5), id: { type: 'Guid', value: '4185404a-5818-48c3-b9be-f217df0dba6f' } }
  const { etag } = await table.createEntity(row('r 1', values))
  const { timestamp, 'odata.metadata': _, ...got } = await table.getEntity("p'1", 'r 1')
  equal(got, row('r 1', { etag, ...values }))
  await refused(table.createEntity(row('r 1')), 409, 'EntityAlreadyExists')
  await table.updateEntity(row('r 1', { whole: 6 }), 'Merge', { etag })
  equal((await table.getEntity("p'1", 'r 1')).text, values.text)
  await refused(table.deleteEntity("p'1", 'r 1', { etag }), 412, 'UpdateConditionNotSatisfied')
  await table.upsertEntity(row('r 1'), 'Replace')
  equal((await table.getEntity("p'1", 'r 1')).text, undefined)
  await table.deleteEntity("p'1", 'r 1')
  await refused(table.getEntity("p'1", 'r 1'), 404, 'ResourceNotFound')
})
tableTest('Batches', async table => {
  const rows = [0, 1, 2, 3, 4].map(i => row(`${i}`, { i, big: BigInt(i) }))
  await table.submitTransaction(rows.map(r => ['create', r]))
  const again = table.submitTransaction([['upsert', row('9')], ['create', rows[0]]])
  await refused(again, 409, 'EntityAlreadyExists')
  const filter = t.odata`PartitionKey eq ${"p'1"} and i gt ${0} and big lt ${4n}`
  const found = table.listEntities({ queryOptions: { filter } }).byPage({ maxPageSize: 2 })
  equal((await all(found)).map(p => p.map(e => e.i)), [[1, 2], [3]])
})
