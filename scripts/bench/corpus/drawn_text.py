"""The words of the drawn pages, written for this project: a village and its waterworks."""

from __future__ import annotations

COLUMNS = (
    "The waterworks of the village began with a quarrel about a ditch. In the dry summer of 1911 the miller kept the "
    "sluice shut for nine days, and the cattle of the lower farms had to be driven to the river every evening.",
    "The council met in the schoolroom and heard three proposals. A dam would have drowned the orchard; a pump would "
    "have needed coal; a pipe from the spring above the forest needed only patience and a loan.",
    "Work on the pipe started in the following March. Forty men dug by hand through clay and then through chalk, and "
    "the schoolmaster recorded the depth of the trench each Saturday in a green notebook.",
    "The first water ran into the reservoir on a Sunday in October. It was brown for an hour and then perfectly clear. "
    "The priest tasted it first, the mayor second, and the miller did not come at all.",
    "Since then the works have been extended twice. A second chamber was added when the railway came, and a chlorine "
    "room was built after the fever year, against the advice of the brewer.",
    "Today two wardens share the duty. One reads the gauges before breakfast, the other walks the line on Thursdays "
    "and listens for leaks with an iron rod pressed to the ear.",
    "Leaks are found mostly in frost. A wet patch on a dry road is a certain sign, but a cellar may fill for a week "
    "before its owner complains, because nobody likes to see the road dug up.",
    "The meters were read with a lantern until 1958. Every house paid by the bucket that the warden estimated, and "
    "the estimates were famous for being kind to widows and hard on innkeepers.",
    "A new law ended this custom. Brass meters came by train in wooden boxes, and a clerk from the district town "
    "showed how to seal them with lead so that no screw could be turned unseen.",
    "The oldest meter still turns in the bakery. It has counted more than ninety thousand cubic metres, and the baker "
    "has refused every offer to replace it with an electronic one.",
)

DROP_CAP = (
    "nyone who follows the pipe uphill reaches the spring house after an hour. The door is low and made of oak, and "
    "the key hangs in the warden's kitchen beside the almanac.",
    "Inside it is cold even in August. The water rises through gravel into a basin of dressed stone, and a brass "
    "plate names the masons who laid it.",
)

CARDS = (
    ("Reservoir North", "Built of brick in 1912.", "Holds 300 cubic metres.", "Key: warden's kitchen."),
    ("Reservoir South", "Built of concrete in 1938.", "Holds 450 cubic metres.", "Key: railway office."),
    ("Spring House", "Built of oak and stone.", "Yields 4 litres a second.", "Key: forest lodge."),
    ("Pump Cellar", "Built below the school.", "Lifts water 38 metres.", "Key: head teacher."),
)

HEBREW = (
    "המים מגיעים ממעיין שמעל היער, ומוזרמים בצינור ברזל אל מאגר גדול.",
    "המאגר נבנה מלבנים אדומות לפני מאה שנים, והוא מספק מים לכל בתי הכפר.",
    "שני שומרים בודקים את השעונים בכל בוקר ורושמים את הלחץ במחברת ירוקה.",
    "בחורף הצינור קופא לפעמים, ואז אנשי הכפר ממלאים דליים ליד הבאר הישנה.",
)
HEBREW_MIXED = "בשנת 1958 הותקנו 120 מדי מים מדגם Aqua-7 בבתי הכפר."

ARABIC_LINES = (
    "تدير بلدية القرية محطة صغيرة لضخ الماء منذ سنوات طويلة",
    "يأتي الماء من ينابيع فوق الغابة ويصل إلى خزان كبير",
    "يقرأ العمال العدادات كل شهر ويكتبون النتائج في دفتر أخضر",
    "تحتاج الأنابيب القديمة إلى إصلاح قبل بداية فصل الشتاء",
    "وافق مجلس القرية على شراء مضخة جديدة بعد نقاش قصير",
)

KOREAN = (
    "마을 수도 사업소는 숲 위의 샘에서 물을 끌어온다.",
    "물은 쇠로 만든 관을 따라 큰 저수지로 흘러간다.",
    "두 명의 관리인이 매일 아침 계량기를 읽고 기록한다.",
    "겨울에는 관이 얼어서 주민들이 우물에서 물을 길었다.",
    "새 펌프를 사는 안건은 회의에서 모두 찬성했다.",
)

KOREAN_COLUMNS = (
    "마을의 수도는 도랑을 둘러싼 다툼에서 시작되었다. 가뭄이 심했던 여름에 방앗간 주인은 아흐레 동안 수문을 닫았다.",
    "마을 회의는 교실에서 열렸고 세 가지 제안을 들었다. 둑을 쌓으면 과수원이 잠기고 펌프에는 석탄이 필요했다.",
    "이듬해 삼월에 관을 묻는 공사가 시작되었다. 마흔 명이 진흙과 석회암을 손으로 파 내려갔다.",
    "시월의 어느 일요일에 첫 물이 저수지로 들어왔다. 한 시간 동안 흐렸다가 곧 맑아졌다.",
    "지금은 두 관리인이 일을 나누어 맡는다. 한 사람은 아침마다 계량기를 읽고 다른 사람은 목요일에 관을 살핀다.",
    "가장 오래된 계량기는 아직도 빵집에서 돌아간다. 주인은 새것으로 바꾸자는 제안을 모두 거절했다.",
)

RUSSIAN = (
    "Деревенский водопровод начинается у родника над лесом.",
    "Вода течёт по чугунной трубе в большой кирпичный резервуар.",
    "Два сторожа каждое утро проверяют давление и пишут отчёт.",
    "Зимой труба иногда замерзает, и люди носят воду из колодца.",
    "Совет деревни решил купить новый насос до начала весны.",
)

CHINESE = "村里的自来水厂从森林上方的泉眼引水，沿着铁管流入砖砌的蓄水池。"

REPORT = (
    "The pressure at the upper valve stayed between 3.8 and 4.1 bar throughout the year. It fell only once, during the "
    "fire at the sawmill, when three hoses were connected to the hydrant in Mill Lane for almost six hours.",
    "The inspectors examined 214 joints and found 9 of them wet. They recommend new rubber rings for the joints below "
    "the railway, where the passing trains shake the pipe more than the engineers had expected.",
    "The council discussed the report in May and accepted its conclusions. The rings have been ordered, and the "
    "repair will take place in September, when the demand is low and the road is dry.",
    "In the long run the pipe below the railway will have to be replaced altogether. The engineers have drawn up two "
    "proposals, one with a tunnel and one with a bridge, and the second is cheaper by a third.",
)

TABLE_PLAIN = (
    ("Reservoir", "Volume", "Year", "State"),
    ("North", "300", "1912", "good"),
    ("South", "450", "1938", "cracked"),
    ("Tower", "120", "1966", "good"),
    ("Forest", "80", "1971", "closed"),
)
TABLE_DOUBLE = (
    ("Valve", "Pressure", "Checked"),
    ("Mill Lane", "3.9 bar", "4 May"),
    ("School", "4.0 bar", "6 May"),
    ("Bakery", "3.7 bar", "9 May"),
)
# The first row's second and fourth cells span two columns.
TABLE_SPANNING = (
    ("District", "Consumption", "", "Losses", ""),
    ("", "2023", "2024", "2023", "2024"),
    ("Upper", "8120", "7940", "410", "395"),
    ("Lower", "9655", "9310", "720", "505"),
    ("Mill", "2210", "2385", "96", "88"),
)
TABLE_BORDERLESS = (
    ("Street", "Houses", "Meters", "Unpaid"),
    ("Church Row", "42", "40", "3"),
    ("Mill Lane", "57", "55", "0"),
    ("Station Road", "31", "31", "5"),
    ("Orchard Way", "18", "17", "1"),
)
TABLE_LEDGER = (
    ("Date", "Entry", "Debit", "Credit"),
    ("02 Jan", "Water rates, upper district", "", "1,240.00"),
    ("09 Jan", "Repair of pump no. 2", "385.50", ""),
    ("17 Jan", "Chlorine, four drums", "96.20", ""),
    ("30 Jan", "Water rates, lower district", "", "1,455.75"),
)

CONTENTS = (
    ("1 The spring and its owners", "3"),
    ("2 The pipe through the forest", "11"),
    ("3 Reservoirs and their keepers", "24"),
    ("4 Prices, meters and quarrels", "37"),
    ("5 The years after the railway", "52"),
)

CODE = (
    "def read_gauge(level):",
    "    if level < 0:",
    "        raise ValueError(level)",
    "    for valve in open_valves:",
    "        valve.turn(level * 2)",
    "    return level",
)

RECEIPT = ("WATERWORKS OFFICE", "Receipt no. 2071", "Meter 5518", "Used 34 m3", "Paid 61.20", "Thank you, see you soon")

FIGURE_LABELS = ("Spring house", "Filter basin", "Upper reservoir", "Village main")
