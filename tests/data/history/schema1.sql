BEGIN TRANSACTION;
CREATE TABLE judgements (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    version INTEGER NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
    at_us INTEGER NOT NULL,
    command TEXT NOT NULL,
    author TEXT NOT NULL,
    prompt TEXT,
    metric TEXT,
    why TEXT,
    parent INTEGER REFERENCES versions (id) ON DELETE SET NULL,
    verdict TEXT NOT NULL,
    input_tokens INTEGER,
    output_tokens INTEGER,
    usd REAL,
    tool TEXT NOT NULL
) STRICT;
INSERT INTO "judgements" VALUES(1,1,1795261279981247,'optimize','user',NULL,NULL,NULL,NULL,'{"kernel":"scale","accepted":null,"findings":[],"cases":[]}',NULL,NULL,NULL,'0.1.0');
INSERT INTO "judgements" VALUES(2,2,1795261279982983,'optimize','claude:some-model','make it faster','time','adds',1,'{"kernel":"scale","accepted":true,"findings":[],"cases":[]}',100,20,0.5,'0.1.0');
CREATE TABLE kernels (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    seen_us INTEGER NOT NULL
) STRICT;
INSERT INTO "kernels" VALUES(1,'scale','<cell>',1795261279982983);
CREATE TABLE places (
    path TEXT NOT NULL,
    name TEXT NOT NULL,
    kernel INTEGER NOT NULL REFERENCES kernels (id) ON DELETE CASCADE,
    PRIMARY KEY (path, name)
) STRICT, WITHOUT ROWID;
INSERT INTO "places" VALUES('<cell>','scale',1);
CREATE TABLE texts (
    hash TEXT PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
INSERT INTO "texts" VALUES('5b62c4be8276016648d44af344b529a3f203e45cf63b08e5f063d6df6fd1d78d',X'789C8B8F4FCFC94F4ACC898F5728CBCF4C51284E4ECC49D548CBC94F2C51D0AAD051C8CC2B51C8D3E4AAE6520002102753C156A124A3283531C533A542AFC21A2291A6A091A9600354A950119D19ABA065AB60A4679066CD55CB0500EAA31C53');
INSERT INTO "texts" VALUES('b640f2c85eda8aaa5fc933414cce0151c3c22d931f26f9669be642503c62bfe9',X'789C8B8F4FCFC94F4ACC898F5728CBCF4C51284E4ECC49D548CBC94F2C51D0AAD051C8CC2B51C8D3E4AAE6520002102753C156A124A3283531C533A542AFC21A2291A6A091A9600354A950119D19ABA06D0BA6ADB96AB900EF421CF7');
CREATE TABLE versions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kernel INTEGER NOT NULL REFERENCES kernels (id) ON DELETE CASCADE,
    content TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    text TEXT NOT NULL REFERENCES texts (hash),
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    language TEXT NOT NULL,
    launch TEXT,
    UNIQUE (kernel, content)
) STRICT;
INSERT INTO "versions" VALUES(1,1,'9b86f8b7aebd772c28b9f668eb9b8eba71d1b79d848b254c4d43da5aae3f8cc5','56e3e546378677d70c5fa51758536dfffc16a36d3bf759c82a265d021b59931e','5b62c4be8276016648d44af344b529a3f203e45cf63b08e5f063d6df6fd1d78d','scale','<cell>',0,96,'text','{"block": ["256"], "grid": ["1"], "require": [], "shared": "0"}');
INSERT INTO "versions" VALUES(2,1,'8b5f733a89e6ddd2e264b62ab74194e8de1a325e6fddae5ad8f81021e04b4ad2','3cb09d880d49821c44c94eb8480f72c5dd7c20c645ea51cc49d641f54b1dd6db','b640f2c85eda8aaa5fc933414cce0151c3c22d931f26f9669be642503c62bfe9','scale','<cell>',0,96,'text','{"block": ["128"], "grid": ["1"], "require": [], "shared": "0"}');
CREATE INDEX places_kernel ON places (kernel);
CREATE INDEX versions_fingerprint ON versions (fingerprint);
CREATE INDEX versions_text ON versions (text);
CREATE INDEX judgements_version ON judgements (version);
CREATE INDEX judgements_parent ON judgements (parent);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('kernels',1);
INSERT INTO "sqlite_sequence" VALUES('versions',2);
INSERT INTO "sqlite_sequence" VALUES('judgements',2);
COMMIT;
PRAGMA user_version = 1;
