// Tables of examples in files that are opened in the page: JSON lines, JSON, CSV and TSV.

/** Return the rows of a file as objects: {columns, rows}. */
export function readTable(name, text) {
  const rows = /\.jsonl?$/i.test(name) ? readJson(text) : readLines(text, /\.csv$/i.test(name) ? "," : "\t");
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  if (!rows.length || !columns.length) throw new Error(`${name}: there are no rows in it`);
  return { columns, rows };
}

function readJson(text) {
  let values;
  try {
    values = JSON.parse(text);
  } catch {
    values = text.split("\n").filter((line) => line.trim()).map((line, n) => {
      try { return JSON.parse(line); } catch { throw new Error(`line ${n + 1}: not JSON`); }
    });
  }
  const rows = Array.isArray(values) ? values : values.data ?? [values];
  if (!rows.every((row) => row && typeof row === "object" && !Array.isArray(row))) {
    throw new Error("expected a JSON object in each line");
  }
  return rows;
}

/** Read values between separators, the first line their names; a value in quotes may have any. */
function readLines(text, separator) {
  const lines = separator === "," ? quoted(text)
    : text.split(/\r?\n/).filter(Boolean).map((line) => line.split(separator));
  const [names = [], ...rest] = lines;
  return rest.map((line) => Object.fromEntries(names.map((name, n) => [name, line[n] ?? ""])));
}

function quoted(text) {
  const lines = [[]];
  const value = /("(?:[^"]|"")*"|[^,\r\n]*)(,|\r?\n|$)/g;
  for (let match = value.exec(text); match && value.lastIndex <= text.length; match = value.exec(text)) {
    lines.at(-1).push(match[1].startsWith('"') ? match[1].slice(1, -1).replaceAll('""', '"') : match[1]);
    if (value.lastIndex >= text.length) break;
    if (match[2] !== ",") lines.push([]);
  }
  return lines.filter((line) => line.length > 1 || line[0]);
}
