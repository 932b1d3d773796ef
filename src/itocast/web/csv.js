/* CSV in and out, as text: itocastCsv.read(text) gives {names, rows, separator}, itocastCsv.write(names, rows) text. */
"use strict";

const itocastCsv = (() => {
  const MARKS = [",", ";", "\t"];

  /* The mark that splits the first line into most parts, outside quotes. */
  function separator(text) {
    const end = text.search(/[\r\n]/);
    const line = (end < 0 ? text : text.slice(0, end)).replace(/"[^"]*"/g, "");
    const counts = MARKS.map((mark) => line.split(mark).length);
    return MARKS[counts.indexOf(Math.max(...counts))];
  }

  function lines(text, mark) {
    const rows = [];
    let row = [], cell = "", quoted = false;
    const close = () => { row.push(cell); cell = ""; };
    for (let i = 0; i < text.length; i++) {
      const one = text[i];
      if (quoted) {
        if (one !== '"') cell += one;
        else if (text[i + 1] === '"') { cell += '"'; i++; }
        else quoted = false;
      } else if (one === '"' && cell === "") quoted = true;
      else if (one === mark) close();
      else if (one === "\n" || one === "\r") {
        if (one === "\r" && text[i + 1] === "\n") i++;
        close();
        if (row.length > 1 || row[0] !== "") rows.push(row);
        row = [];
      } else cell += one;
    }
    if (quoted) throw new Error("A quotation mark is opened and never closed: look for a single \" in the file.");
    close();
    if (row.length > 1 || row[0] !== "") rows.push(row);
    return rows;
  }

  function read(text) {
    const plain = text.replace(/^\uFEFF/, "");
    if (plain.includes("\u0000")) throw new Error("This is not a text file: save the table as CSV and choose that file.");
    const mark = separator(plain);
    const [names, ...rows] = lines(plain, mark);
    if (!names) throw new Error("The file is empty: choose one with a line of column names and at least one row.");
    if (!rows.length) throw new Error("The file has column names but no rows below them.");
    const twice = names.find((name, i) => names.indexOf(name) !== i);
    if (twice !== undefined) throw new Error(`The column name “${twice}” stands there twice: rename one of the two.`);
    const odd = rows.findIndex((row) => row.length !== names.length);
    if (odd >= 0) {
      throw new Error(`Row ${odd + 1} has ${rows[odd].length} cells, but there are ${names.length} column names: look for a missing or extra separator.`);
    }
    return {names, rows, separator: mark};
  }

  const quote = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  const write = (names, rows) => [names, ...rows].map((row) => row.map(quote).join(",")).join("\n") + "\n";

  return {read, write};
})();
